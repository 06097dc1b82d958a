{{- define "slipway.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name prefix of objects outside the release's namespace: two releases may have the same name in different namespaces. */}}
{{- define "slipway.scopedName" -}}
{{- $name := include "slipway.fullname" . -}}
{{- if eq $name .Release.Namespace -}}{{ $name }}{{- else -}}{{ printf "%s-%s" $name .Release.Namespace }}{{- end -}}
{{- end -}}

{{- define "slipway.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* (list . "server") */}}
{{- define "slipway.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (list . "server"): the account of a component. Workers change workloads, so the guard lets only their account pass. */}}
{{- define "slipway.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- $name := include "slipway.fullname" $root -}}
{{- if eq (index . 1) "server" -}}
{{- default (printf "%s-server" $name) $root.Values.serviceAccount.server.name -}}
{{- else -}}
{{- if eq $root.Values.mode "party" -}}{{- $name = printf "%s-party" $name -}}{{- end -}}
{{- default $name $root.Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "slipway.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The namespaces whose workloads are released, as JSON. */}}
{{- define "slipway.watchNamespaces" -}}
{{- default (list .Release.Namespace) .Values.watchNamespaces | toJson -}}
{{- end -}}

{{/* "true" or nothing, like all conditions below. */}}
{{- define "slipway.isEngine" -}}{{- if eq .Values.mode "engine" -}}true{{- end -}}{{- end -}}

{{- define "slipway.hasWebhook" -}}
{{- if and (include "slipway.isEngine" .) .Values.rollouts.enabled .Values.rollouts.webhook.enabled -}}true{{- end -}}
{{- end -}}

{{/* The chart registers the webhooks, unless servers do. */}}
{{- define "slipway.registersWebhook" -}}
{{- if and (include "slipway.hasWebhook" .) (not .Values.rbac.byServer) -}}true{{- end -}}
{{- end -}}

{{/* The version of mutating admission policies that the cluster serves; nothing if it serves none. */}}
{{- define "slipway.mutating" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}v1beta1{{- end -}}
{{- end -}}

{{- define "slipway.hasKuscia" -}}{{- if and (include "slipway.isEngine" .) .Values.kuscia.enabled -}}true{{- end -}}{{- end -}}

{{/* The Deployments of this installation, as JSON. */}}
{{- define "slipway.components" -}}
{{- if include "slipway.isEngine" . -}}["server", "worker"]{{- else -}}["worker"]{{- end -}}
{{- end -}}
