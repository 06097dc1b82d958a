{{/* (list . "server"): the Deployment of one component. */}}
{{- define "slipway.deployment" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
{{- $v := get $root.Values $component -}}
{{- $selector := include "slipway.selector" . -}}
{{- $name := printf "%s-%s" (include "slipway.fullname" $root) $component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- merge (fromYaml (include "slipway.labels" $root)) (fromYaml $selector) | toYaml | nindent 4 }}
spec:
  replicas: {{ $v.replicas }}
  revisionHistoryLimit: 5
  strategy:
    type: RollingUpdate
    # A new pod is ready before an old one is removed.
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels: {{- $selector | nindent 6 }}
  template:
    metadata:
      labels: {{- merge (fromYaml (include "slipway.labels" $root)) (fromYaml $selector) $v.podLabels | toYaml | nindent 8 }}
      {{- $annotations := deepCopy $v.podAnnotations }}
      {{- if and (eq $component "worker") (or $root.Values.policy $root.Values.servings.policy $root.Values.builds.policy) }}
      {{- /* Read at startup only. */}}
      {{- $_ := set $annotations "checksum/policies" (list $root.Values.policy $root.Values.servings.policy $root.Values.builds.policy | toJson | sha256sum) }}
      {{- end }}
      {{- with $annotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "slipway.serviceAccount" (list $root $component) }}
      automountServiceAccountToken: true
      # For a Service named slipway, Kubernetes would set variables in pods that look like settings.
      enableServiceLinks: false
      {{- include "slipway.pullSecrets" $root | nindent 6 }}
      securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      {{- with $v.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # Time to finish running work, and for clients to stop connecting to a server that ends.
      terminationGracePeriodSeconds: {{ add $root.Values.shutdownTimeoutSeconds 10 }}
      {{- with $v.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.tolerations }}
      tolerations: {{- toYaml . | nindent 6 }}
      {{- end }}
      affinity:
      {{- if $v.affinity }}{{- toYaml $v.affinity | nindent 8 }}{{- else }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {{- $selector | nindent 18 }}
      {{- end }}
      topologySpreadConstraints:
      {{- if $v.topologySpreadConstraints }}{{- toYaml $v.topologySpreadConstraints | nindent 6 }}{{- else }}
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {{- $selector | nindent 12 }}
      {{- end }}
      containers:
      - name: {{ $component }}
        image: {{ include "slipway.image" $root }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
        - {{ $component }}
        {{- include (printf "slipway.settings.%s" $component) $root | nindent 8 }}
        {{- with $v.extraArgs }}{{- toYaml . | nindent 8 }}{{- end }}
        {{- with $v.extraEnv }}
        env: {{- toYaml . | nindent 8 }}
        {{- end }}
        ports: {{- include (printf "slipway.ports.%s" $component) $root | nindent 8 }}
        {{- include (printf "slipway.probes.%s" $component) $root | nindent 8 }}
        {{- with $v.resources }}
        resources: {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext: {{- toYaml $root.Values.containerSecurityContext | nindent 10 }}
        volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- range $folder, $secret := fromYaml (include "slipway.secrets" .) }}
        {{- if $secret }}
        - {name: {{ $folder }}, mountPath: /etc/slipway/{{ $folder }}, readOnly: true}
        {{- end }}
        {{- end }}
        {{- if and (eq $component "worker") (or $root.Values.policy $root.Values.servings.policy $root.Values.builds.policy) }}
        - {name: policies, mountPath: /etc/slipway/policies, readOnly: true}
        {{- end }}
        {{- with $v.extraVolumeMounts }}{{- toYaml . | nindent 8 }}{{- end }}
      volumes:
      # The worker checks packages here before pods fetch them.
      - name: tmp
        emptyDir: {{- if $v.tmpSize }} {sizeLimit: {{ $v.tmpSize }}}{{- else }} {}{{- end }}
      {{- range $folder, $secret := fromYaml (include "slipway.secrets" .) }}
      {{- if $secret }}
      - name: {{ $folder }}
        secret:
          secretName: {{ $secret }}
          defaultMode: 0440
          {{- if and (eq $folder "webhook-tls") (not $root.Values.rollouts.webhook.tlsSecret.name) }}
          # Without the key of the CA.
          items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
          {{- end }}
      {{- end }}
      {{- end }}
      {{- if and (eq $component "worker") (or $root.Values.policy $root.Values.servings.policy $root.Values.builds.policy) }}
      - name: policies
        configMap: {name: {{ $name }}-policies}
      {{- end }}
      {{- with $v.extraVolumes }}{{- toYaml . | nindent 6 }}{{- end }}
{{- end -}}

{{- define "slipway.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The rule of a NetworkPolicy that allows DNS. */}}
{{- define "slipway.egress.dns" -}}
# DNS
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
  {{- with .Values.networkPolicy.dnsTo }}
  to: {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "slipway.ports.server" -}}
- {name: http, containerPort: 8080}
{{- if include "slipway.hasKuscia" . }}
- {name: kuscia-http, containerPort: 8082}
- {name: kuscia-grpc, containerPort: 8083}
{{- end }}
{{- if include "slipway.hasWebhook" . }}
- {name: webhook, containerPort: 9443}
{{- end }}
{{- end -}}

{{- define "slipway.ports.worker" -}}
- {name: metrics, containerPort: 9090}
{{- end -}}

{{/*
A server has started when all its dependencies were available once, so that an upgrade stops at a version that doesn't become ready. From then
on it accepts requests as long as it runs: while Temporal is unavailable, it answers 503 with the reason, which is better than no answer.
*/}}
{{- define "slipway.probes.server" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (not (empty .Values.api.tlsSecret.name)) -}}
startupProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 120
readinessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
lifecycle:
  preStop:
    sleep: {seconds: 5}
{{- end -}}

{{/* A worker is ready when it accepts work. Clients don't connect to it. */}}
{{- define "slipway.probes.worker" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}
