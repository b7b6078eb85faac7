{{- define "headrace.bootstrap" -}}{{ .Values.cluster }}-bootstrap{{- end }}
{{- define "headrace.operator" -}}{{ .Values.cluster }}-operator{{- end }}
{{- define "headrace.hook" -}}{{ .Values.cluster }}-uninstall{{- end }}
{{- /* Cluster-wide objects: two releases of one name in two namespaces must not meet. */ -}}
{{- define "headrace.global" -}}{{ .Release.Namespace }}-{{ .Values.cluster }}{{- end }}
{{- define "headrace.scheme" -}}{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}{{- end }}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

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
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
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
