{{- define "headrace.bootstrap" -}}{{ .Values.cluster }}-bootstrap{{- end }}
{{- define "headrace.operator" -}}{{ .Values.cluster }}-operator{{- end }}
{{- define "headrace.hook" -}}{{ .Values.cluster }}-uninstall{{- end }}
{{- /* Cluster-wide objects. Not by namespace: two releases of one cluster would act on the same Topics, and so Helm refuses
the second, whose objects are there already. */ -}}
{{- define "headrace.global" -}}headrace:{{ .Values.cluster }}{{- end }}
{{- /* Of brokers, and the same for every cluster, as the names of their Leases are: Helm refuses a second cluster in one
namespace. */ -}}
{{- define "headrace.leases" -}}headrace-broker{{- end }}
{{- define "headrace.sparkNamespace" -}}{{ .Values.spark.namespace | default .Release.Namespace }}{{- end }}
{{- define "headrace.caFile" -}}/etc/headrace/tls/ca.crt{{- end }}
{{- define "headrace.scheme" -}}{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}{{- end }}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Not of pods: those would be replaced for another version of the chart alone. */ -}}
{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headrace.image" -}}
{{- $image := .root.Values.image -}}
{{- $tag := $image.tag | default .root.Chart.AppVersion -}}
{{ if $image.registry }}{{ $image.registry }}/{{ end }}{{ .repository }}:{{ $tag }}
{{- end }}

{{- define "headrace.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "headrace.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The authority alone: nobody but the brokers has need of their key, and they read it by the API. */ -}}
{{- define "headrace.caVolume" -}}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}

{{- define "headrace.placing" -}}
{{- with .nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- define "headrace.podAnnotations" -}}
{{- $found := dict -}}
{{- if .root.Values.monitoring.annotations -}}
{{- $found = dict "prometheus.io/scrape" "true" "prometheus.io/path" "/metrics" "prometheus.io/port" (toString .port) "prometheus.io/scheme" .scheme -}}
{{- end -}}
{{- with merge (deepCopy .extra) $found }}
annotations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
