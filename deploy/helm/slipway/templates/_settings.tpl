{{/*
The flags of a process, as a YAML list. The files of each Secret are in a folder of their own (slipway.secrets), which the kubelet keeps
current.
*/}}

{{- define "slipway.settings.common" -}}
{{- $temporal := .Values.temporal -}}
- --temporal-address={{ $temporal.address }}
- --temporal-namespace={{ $temporal.namespace }}
- --temporal-tls={{ $temporal.tls }}
{{- with $temporal.serverName }}
- --temporal-server-name={{ . }}
{{- end }}
{{- with $temporal.caSecret }}{{- if .name }}
- --temporal-ca-file=/etc/slipway/temporal-ca/{{ .key }}
{{- end }}{{- end }}
{{- with $temporal.clientCertSecret }}{{- if .name }}
- --temporal-cert-file=/etc/slipway/temporal-client/{{ .certKey }}
- --temporal-key-file=/etc/slipway/temporal-client/{{ .keyKey }}
{{- end }}{{- end }}
{{- with $temporal.apiKeySecret }}{{- if .name }}
- --temporal-api-key-file=/etc/slipway/temporal-api-key/{{ .key }}
{{- end }}{{- end }}
{{- if $temporal.codecKeysSecret.name }}
- --temporal-codec-key-dir=/etc/slipway/codec-keys
{{- if $temporal.codecRequire }}
- --codec-require
{{- end }}
{{- end }}
- --watch-namespaces={{ include "slipway.watchNamespaces" . | fromJsonArray | join "," }}
{{- if include "slipway.isEngine" . }}
- --namespace={{ .Release.Namespace }}
- --serving-namespace={{ .Values.servingNamespace.name }}
{{- with .Values.engineName }}
- --engine-name={{ . }}
{{- end }}
{{- end }}
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
- --shutdown-timeout={{ .Values.shutdownTimeoutSeconds }}s
{{- end -}}

{{- define "slipway.settings.server" -}}
{{- $api := .Values.api -}}
{{- $name := include "slipway.fullname" . -}}
{{ include "slipway.settings.common" . }}
- --listen=:8080
{{- if $api.tokenSecret.name }}
- --api-token-file=/etc/slipway/api-token/{{ $api.tokenSecret.key }}
{{- end }}
{{- if $api.tlsSecret.name }}
- --api-cert-file=/etc/slipway/api-tls/{{ $api.tlsSecret.certKey }}
- --api-key-file=/etc/slipway/api-tls/{{ $api.tlsSecret.keyKey }}
{{- end }}
{{- if $api.clientCASecret.name }}
- --api-ca-file=/etc/slipway/api-client-ca/{{ $api.clientCASecret.key }}
{{- end }}
{{- $host := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list $name $host (printf "%s.svc" $host) (printf "%s.svc.cluster.local" $host) }}
- --allowed-hosts={{ concat $hosts $api.allowedHosts | uniq | join "," }}
{{- with $api.trustedProxies }}
- --trusted-proxies={{ join "," . }}
{{- end }}
- --temporal-ui={{ .Values.temporal.ui }}
- --install-crds={{ .Values.crds.byServer }}
{{- if include "slipway.hasKuscia" . }}
- --kuscia-listen=:8082
- --kuscia-grpc-listen=:8083
- --kuscia-protocol={{ .Values.kuscia.protocol }}
- --kuscia-cert-file=/etc/slipway/kuscia-tls/{{ .Values.kuscia.tlsSecret.certKey }}
- --kuscia-key-file=/etc/slipway/kuscia-tls/{{ .Values.kuscia.tlsSecret.keyKey }}
{{- if eq .Values.kuscia.protocol "MTLS" }}
- --kuscia-ca-file=/etc/slipway/kuscia-ca/{{ .Values.kuscia.caSecret.key }}
{{- end }}
- --kuscia-token-file=/etc/slipway/kuscia-token/{{ .Values.kuscia.tokenSecret.key }}
{{- else }}
# Kuscia's API is served with the HTTP API only.
- --kuscia-listen=
- --kuscia-grpc-listen=
{{- end }}
{{- if include "slipway.hasWebhook" . }}
- --webhook-listen=:9443
- --webhook-service={{ .Release.Namespace }}/{{ $name }}-webhook:{{ .Values.rollouts.webhook.port }}
- --register-webhooks={{ .Values.rbac.byServer }}
{{- if .Values.rbac.byServer }}
{{- $worker := printf "system:serviceaccount:%s:%s" .Release.Namespace (include "slipway.serviceAccount" (list . "worker")) }}
- --engine-identity={{ prepend .Values.guard.identities $worker | uniq | join "," }}
{{- end }}
{{- if include "slipway.webhookSecret" . }}
{{- $keys := .Values.rollouts.webhook.tlsSecret }}
{{- if not $keys.name }}{{- $keys = dict "certKey" "tls.crt" "keyKey" "tls.key" }}{{- end }}
- --webhook-cert-file=/etc/slipway/webhook-tls/{{ $keys.certKey }}
- --webhook-key-file=/etc/slipway/webhook-tls/{{ $keys.keyKey }}
{{- end }}
{{- with .Values.rollouts.webhook.clientCASecret }}{{- if .name }}
- --webhook-client-ca-file=/etc/slipway/webhook-client-ca/{{ .key }}
{{- end }}{{- end }}
{{- end }}
- --gate={{ ternary .Values.rollouts.gate "off" .Values.rollouts.enabled }}
{{- end -}}

{{- define "slipway.settings.worker" -}}
{{ include "slipway.settings.common" . }}
{{- if not (include "slipway.isEngine" .) }}
- --party={{ .Values.party.name }}{{ with .Values.party.queue }}={{ . }}{{ end }}
{{- end }}
- --metrics-listen=:9090
- --image={{ include "slipway.image" . }}
- --source-allow={{ .Values.packages.sourceAllow | join "," }}
{{- with .Values.packages.store }}
- --package-store={{ . }}
{{- end }}
{{- with .Values.packages.storeTokenSecret }}{{- if .name }}
- --package-store-token-file=/etc/slipway/package-store-token/{{ .key }}
{{- end }}{{- end }}
{{- with .Values.traffic.kinds }}
- --traffic-kinds={{ . | join "," }}
{{- end }}
{{- with .Values.traffic.tenantScripts }}
- --tenant-scripts={{ . | join "," }}
{{- end }}
{{- if and (include "slipway.isEngine" .) .Values.rollouts.requireGate }}
- --require-gate=true
{{- end }}
{{- if .Values.servings.inAnyNamespace }}
- --servings-in-any-namespace=true
{{- end }}
{{- if .Values.policy }}
- --release-policy-file=/etc/slipway/policies/releases.yaml
{{- end }}
{{- if .Values.servings.policy }}
- --serving-policy-file=/etc/slipway/policies/servings.yaml
{{- end }}
{{- if .Values.builds.policy }}
- --build-policy-file=/etc/slipway/policies/builds.yaml
{{- end }}
{{- end -}}

{{/* (list . "server"): the Secrets that are mounted, as {folder: name of the Secret}. */}}
{{- define "slipway.secrets" -}}
{{- $v := (index . 0).Values -}}
temporal-ca: {{ $v.temporal.caSecret.name | quote }}
temporal-client: {{ $v.temporal.clientCertSecret.name | quote }}
temporal-api-key: {{ $v.temporal.apiKeySecret.name | quote }}
codec-keys: {{ $v.temporal.codecKeysSecret.name | quote }}
{{- if eq (index . 1) "server" }}
api-token: {{ $v.api.tokenSecret.name | quote }}
api-tls: {{ $v.api.tlsSecret.name | quote }}
api-client-ca: {{ $v.api.clientCASecret.name | quote }}
{{- if include "slipway.hasKuscia" (index . 0) }}
kuscia-tls: {{ $v.kuscia.tlsSecret.name | quote }}
kuscia-ca: {{ ternary $v.kuscia.caSecret.name "" (eq $v.kuscia.protocol "MTLS") | quote }}
kuscia-token: {{ $v.kuscia.tokenSecret.name | quote }}
{{- end }}
{{- if include "slipway.hasWebhook" (index . 0) }}
webhook-tls: {{ include "slipway.webhookSecret" (index . 0) | quote }}
webhook-client-ca: {{ $v.rollouts.webhook.clientCASecret.name | quote }}
{{- end }}
{{- else }}
package-store-token: {{ $v.packages.storeTokenSecret.name | quote }}
{{- end }}
{{- end -}}
