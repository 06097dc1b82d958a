{{/* The Secret with the certificate of the webhooks; nothing if servers make it. */}}
{{- define "slipway.webhookSecret" -}}
{{- $webhook := .Values.rollouts.webhook -}}
{{- if $webhook.tlsSecret.name -}}{{ $webhook.tlsSecret.name }}
{{- else if include "slipway.registersWebhook" . -}}{{ include "slipway.fullname" . }}-webhook-tls{{- end -}}
{{- end -}}

{{/* namespace/name of the Certificate whose CA cert-manager writes; nothing without cert-manager. */}}
{{- define "slipway.webhookInjects" -}}
{{- if .Values.rollouts.webhook.certManager.issuerRef -}}
{{ .Release.Namespace }}/{{ include "slipway.webhookSecret" . }}
{{- end -}}
{{- end -}}

{{/* The CA of the webhooks in base64; nothing with cert-manager, which writes it. */}}
{{- define "slipway.webhookCA" -}}
{{- $webhook := .Values.rollouts.webhook -}}
{{- if include "slipway.webhookInjects" . -}}
{{- else if $webhook.caBundle -}}{{ $webhook.caBundle | b64enc }}
{{- else if $webhook.tlsSecret.name -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace $webhook.tlsSecret.name -}}
{{- $unknown := printf "the CA of rollouts.webhook.tlsSecret is unknown: the Secret %s has no ca.crt here, or can't be read (helm template reads none). Set rollouts.webhook.caBundle" $webhook.tlsSecret.name -}}
{{- required $unknown (index (default dict $secret.data) "ca.crt") -}}
{{- else -}}
{{- (fromJson (include "slipway.webhookCertificate" .)).ca | b64enc -}}
{{- end -}}
{{- end -}}

{{/*
The generated certificate as {ca, caKey, cert, key}. The CA is made once, and kept in the Secret over upgrades; each upgrade signs a certificate.
Templates share the result by the values: each call would make another CA.
*/}}
{{- define "slipway.webhookCertificate" -}}
{{- if not (hasKey .Values.rollouts.webhook "generated") -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (include "slipway.webhookSecret" .) -}}
{{- $data := default dict $secret.data -}}
{{- $ca := dict -}}
{{- if and (index $data "ca.crt") (index $data "ca.key") -}}
{{- $ca = buildCustomCert (index $data "ca.crt") (index $data "ca.key") -}}
{{- else -}}
{{- $ca = genCA "slipway-webhook-ca" 3650 -}}
{{- end -}}
{{- $host := printf "%s-webhook.%s.svc" (include "slipway.fullname" .) .Release.Namespace -}}
{{- $signed := genSignedCert $host nil (list $host) 3650 $ca -}}
{{- $_ := set .Values.rollouts.webhook "generated" (dict "ca" $ca.Cert "caKey" $ca.Key "cert" $signed.Cert "key" $signed.Key) -}}
{{- end -}}
{{- .Values.rollouts.webhook.generated | toJson -}}
{{- end -}}
