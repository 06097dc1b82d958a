{{/* Checks of values that depend on each other, which the schema can't express. */}}
{{- define "slipway.check" -}}
{{- $v := .Values -}}
{{- if and (include "slipway.isEngine" .) $v.party.name -}}
{{- fail "party.name is the party of a worker in that party's cluster: set mode to party, or leave party.name out" -}}
{{- end -}}
{{- if not (include "slipway.isEngine" .) -}}{{- include "slipway.check.party" . -}}{{- else -}}{{- include "slipway.check.engine" . -}}{{- end -}}
{{- if and (eq $v.temporal.tls "off") (or $v.temporal.caSecret.name $v.temporal.clientCertSecret.name $v.temporal.serverName) -}}
{{- fail "temporal.tls is off, but temporal.caSecret, clientCertSecret or serverName is set: remove them, or leave temporal.tls at auto" -}}
{{- end -}}
{{- if and $v.temporal.codecRequire (not $v.temporal.codecKeysSecret.name) -}}
{{- fail "temporal.codecRequire needs the keys: set temporal.codecKeysSecret" -}}
{{- end -}}
{{- if and $v.packages.storeTokenSecret.name (not $v.packages.store) -}}
{{- fail "packages.storeTokenSecret is the token of a package store, but packages.store is empty: set the URL of the store" -}}
{{- end -}}
{{- $registers := and (include "slipway.hasWebhook" .) $v.rbac.byServer -}}
{{- if and $v.guard.identities (not $v.guard.install) (not $registers) -}}{{- fail "guard.identities has no effect without guard.install: true" -}}{{- end -}}
{{- if and $v.guard.namespaceSelector (not $v.guard.install) -}}{{- fail "guard.namespaceSelector has no effect without guard.install: true" -}}{{- end -}}
{{- if and $v.guard.lock (not $v.guard.install) -}}{{- fail "guard.lock has no effect without guard.install: true" -}}{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: set serviceAccount.name to an existing account" -}}
{{- end -}}
{{- if has "kube-system" $v.watchNamespaces -}}
{{- fail "watchNamespaces has kube-system: who may change its pods becomes an administrator of the cluster. Release its workloads in another way" -}}
{{- end -}}
{{- if $v.guard.install -}}{{- include "slipway.check.guard" . -}}{{- end -}}
{{- range $component := fromJsonArray (include "slipway.components" .) -}}{{- include "slipway.check.args" (list $ $component) -}}{{- end -}}
{{- end -}}

{{- define "slipway.check.engine" -}}
{{- $v := .Values -}}
{{- if not (or $v.api.tokenSecret.name $v.api.clientCASecret.name) -}}
{{- fail "the API would be open to every client: name a Secret with its token (api.tokenSecret), or with the CA of its clients (api.clientCASecret)" -}}
{{- end -}}
{{- if and $v.api.clientCASecret.name (not $v.api.tlsSecret.name) -}}
{{- fail "api.clientCASecret requires client certificates, which need TLS: set api.tlsSecret too" -}}
{{- end -}}
{{- if and $v.crds.install $v.crds.byServer -}}
{{- fail "crds.install and crds.byServer both install the definitions: set one of them to false" -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) $v.serviceAccount.name (not $v.serviceAccount.server.name) -}}
{{- fail "serviceAccount.create is false: set serviceAccount.server.name to an existing account of its own for servers" -}}
{{- end -}}
{{- if eq (include "slipway.serviceAccount" (list . "server")) (include "slipway.serviceAccount" (list . "worker")) -}}
{{- fail "serviceAccount.name and serviceAccount.server.name are one account: servers must not have the rights of workers on workloads" -}}
{{- end -}}
{{- include "slipway.check.webhook" . -}}
{{- if and $v.kuscia.enabled (not (and $v.kuscia.tlsSecret.name $v.kuscia.tokenSecret.name)) -}}
{{- fail "kuscia.enabled needs kuscia.tlsSecret (certificate and key) and kuscia.tokenSecret" -}}
{{- end -}}
{{- if and $v.kuscia.enabled (eq $v.kuscia.protocol "MTLS") (not $v.kuscia.caSecret.name) -}}
{{- fail "kuscia.protocol MTLS needs kuscia.caSecret, the CA of the clients' certificates: set it, or choose TLS" -}}
{{- end -}}
{{- with $v.temporalSchema -}}
{{- if and .enabled (not (and .image .host .passwordSecret.name)) -}}
{{- fail "temporalSchema.enabled needs temporalSchema.image (temporalio/admin-tools, of the version of your Temporal), host (its PostgreSQL) and passwordSecret" -}}
{{- end -}}
{{- if and .tls.caSecret.name (not .tls.enabled) -}}{{- fail "temporalSchema.tls.caSecret has no effect without temporalSchema.tls.enabled: true" -}}{{- end -}}
{{- end -}}
{{- if and $v.rollouts.enabled (eq $v.rollouts.gate "webhook") (not $v.rollouts.webhook.enabled) -}}
{{- fail "rollouts.gate webhook holds nothing without rollouts.webhook.enabled: true" -}}
{{- end -}}
{{- end -}}

{{- define "slipway.check.webhook" -}}
{{- $v := .Values -}}{{- $webhook := $v.rollouts.webhook -}}
{{- if and (include "slipway.registersWebhook" .) $v.crds.byServer -}}
{{- fail "crds.byServer installs the definition of Rollouts without a webhook for conversion: let servers register it too (rbac.byServer: true), or set rollouts.webhook.enabled to false" -}}
{{- end -}}
{{- if and $v.rbac.byServer (or $webhook.caBundle $webhook.certManager.issuerRef) -}}
{{- fail "rollouts.webhook.caBundle and certManager have no effect with rbac.byServer: true, since servers register the webhooks" -}}
{{- end -}}
{{- if and $webhook.certManager.issuerRef (or $webhook.tlsSecret.name $webhook.caBundle) -}}
{{- fail "rollouts.webhook.certManager makes the certificate and its CA: leave out tlsSecret and caBundle" -}}
{{- end -}}
{{- if and $webhook.caBundle (not $webhook.tlsSecret.name) -}}
{{- fail "rollouts.webhook.caBundle is the CA of rollouts.webhook.tlsSecret: set tlsSecret too" -}}
{{- end -}}
{{- end -}}

{{- define "slipway.check.party" -}}
{{- $v := .Values -}}
{{- if not $v.party.name -}}{{- fail "mode party runs the workers of one party: set party.name" -}}{{- end -}}
{{- if has .Release.Namespace (fromJsonArray (include "slipway.watchNamespaces" .)) -}}
{{- fail (printf "the workers of a party need a namespace that is not released: those who administer %s could act as their account, whose edits the guard lets pass. Install the chart in another namespace (--namespace slipway-party --create-namespace), and name the released ones in watchNamespaces" .Release.Namespace) -}}
{{- end -}}
{{- range $name, $on := dict "rollouts.enabled" $v.rollouts.enabled "kuscia.enabled" $v.kuscia.enabled "crds.byServer" $v.crds.byServer "rbac.byServer" $v.rbac.byServer
  "temporalSchema.enabled" $v.temporalSchema.enabled
  "rbac.approver" $v.rbac.approver "monitoring.serviceMonitor.enabled" $v.monitoring.serviceMonitor.enabled -}}
{{- if $on -}}{{- fail (printf "%s belongs to the engine: leave it out in mode party, which runs workers only" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slipway.check.guard" -}}
{{- if and (include "slipway.isEngine" .) .Values.guard.gate .Values.crds.install (not .Values.crds.kruise) -}}
{{- fail "guard.gate needs the definition of Rollouts, which crds.kruise: false leaves out: set guard.gate to false" -}}
{{- end -}}
{{- end -}}

{{/* A duplicate flag would override the value that the rest of the chart uses. */}}
{{- define "slipway.check.args" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
{{- $own := list -}}
{{- range fromYamlArray (include (printf "slipway.settings.%s" $component) $root) -}}{{- $own = append $own (regexFind "^--[a-z-]+" .) -}}{{- end -}}
{{- range (get $root.Values $component).extraArgs -}}
{{- if has (regexFind "^--[a-z-]+" .) $own -}}
{{- fail (printf "%s.extraArgs has %s, which the chart sets by itself: use the value of the chart for it" $component (regexFind "^--[a-z-]+" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
