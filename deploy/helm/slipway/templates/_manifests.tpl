{{/* A file of deploy/: (list . "files/rbac/centre.yaml"). The repository's files are the only source, so that the chart can't differ from them. */}}
{{- define "slipway.file" -}}
{{- $text := (index . 0).Files.Get (index . 1) -}}
{{- if not $text -}}{{- fail (printf "the chart lacks %s: package it with helm package from a clone of Slipway's repository" (index . 1)) -}}{{- end -}}
{{- $text -}}
{{- end -}}

{{/* The documents of a manifest of deploy/, as {"items": […]}: (list . "files/rbac/centre.yaml"). */}}
{{- define "slipway.manifest" -}}
{{- $text := include "slipway.file" . -}}
{{- $items := list -}}
{{- range $document := regexSplit "(?m)^---[ \\t]*$" $text -1 -}}
{{- $object := fromYaml $document -}}
{{- if hasKey $object "Error" -}}{{- fail (printf "%s is not YAML: %s" (index $ 1) $object.Error) -}}{{- end -}}
{{- if $object.kind -}}{{- $items = append $items $object -}}{{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{/* (list . object): the object with the labels of the release. */}}
{{- define "slipway.labelled" -}}
{{- $object := index . 1 -}}
{{- $labels := merge (fromYaml (include "slipway.labels" (index . 0))) (default dict $object.metadata.labels) -}}
{{- $_ := set $object.metadata "labels" $labels -}}
---
{{ toYaml $object }}
{{ end -}}

{{/*
The roles and bindings of a manifest of deploy/rbac, for an account of this release:

  root        .
  file        its name
  namespaces  the names that its namespaces have here
  omit        names that are left out (optional)
  secrets     names of the Secrets that it grants (optional)
  component   whose account it is for; default: worker
  bindIn      namespaces in which its RoleBindings of ClusterRoles are made (optional)
*/}}
{{- define "slipway.rbac" -}}
{{- $root := .root -}}{{- $omit := default list .omit -}}{{- $secrets := .secrets -}}{{- $namespaces := .namespaces -}}{{- $bindIn := .bindIn -}}
{{- $prefix := include "slipway.scopedName" $root -}}
{{- $account := dict "kind" "ServiceAccount" "name" (include "slipway.serviceAccount" (list $root (default "worker" .component))) "namespace" $root.Release.Namespace -}}
{{- range $object := (fromJson (include "slipway.manifest" (list $root (printf "files/rbac/%s.yaml" .file)))).items -}}
{{- if not (or (has $object.kind (list "Namespace" "ServiceAccount")) (has $object.metadata.name $omit)) -}}
{{- $_ := set $object.metadata "name" (regexReplaceAll "^slipway" $object.metadata.name $prefix) -}}
{{- $inEach := and $bindIn (eq $object.kind "RoleBinding") (eq $object.roleRef.kind "ClusterRole") -}}
{{- if and $object.metadata.namespace (not $inEach) -}}
{{- $unknown := printf "%s has a namespace %s that the chart doesn't know" $.file $object.metadata.namespace -}}
{{- $_ := set $object.metadata "namespace" (required $unknown (get $namespaces $object.metadata.namespace)) -}}
{{- end -}}
{{- if $object.roleRef -}}
{{- $_ := set $object.roleRef "name" (regexReplaceAll "^slipway" $object.roleRef.name $prefix) -}}
{{- $_ := set $object "subjects" (list $account) -}}
{{- end -}}
{{- range $rule := $object.rules -}}
{{- if has "slipway-gate-slipway" $rule.resourceNames -}}
{{- $_ := set $rule "resourceNames" (list (printf "slipway-authors-%s" $root.Release.Namespace) (printf "slipway-gate-%s" $root.Release.Namespace)) -}}
{{- end -}}
{{- if and $secrets (has "secrets" $rule.resources) -}}{{- $_ := set $rule "resourceNames" $secrets -}}{{- end -}}
{{- end -}}
{{- if $inEach -}}
{{- range $namespace := $bindIn -}}
{{- $_ := set $object.metadata "namespace" $namespace -}}
{{ include "slipway.labelled" (list $root $object) }}
{{- end -}}
{{- else -}}
{{ include "slipway.labelled" (list $root $object) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
