{{- define "oq.name" -}}
{{- printf "%s-%s" .Release.Name "oq" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "oq.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "oq.selector" . }}
{{- end -}}

{{- define "oq.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "oq.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "oq.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- /* The secret that holds the server's URL: the operator's, or ours for the bundled Valkey. */ -}}
{{- define "oq.serverSecret" -}}
{{- default (printf "%s-server" (include "oq.name" .)) .Values.server.existingSecret -}}
{{- end -}}

{{- define "oq.serverEnv" -}}
- name: OQ_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "oq.serverSecret" . }}
      key: {{ .Values.server.secretKey }}
{{- end -}}

{{- define "oq.sparkEnv" -}}
{{- if and .Values.spark.enabled (eq .Values.spark.mode "connect") -}}
- name: SPARK_REMOTE
  value: sc://{{ include "oq.name" . }}-spark-connect:{{ .Values.spark.connect.port }}
{{- end }}
{{- end -}}

{{- define "oq.disruption" -}}
{{- if .root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "oq.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "oq.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}

{{- /* What is the same for every pod: who it is, and what it must not do. */ -}}
{{- define "oq.pod" -}}
serviceAccountName: {{ include "oq.serviceAccount" . }}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "oq.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "oq.mounts" -}}
- name: scratch
  mountPath: /tmp
{{- if .Values.server.caSecret }}
- name: ca
  mountPath: /etc/orchestration-queue/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "oq.volumes" -}}
- name: scratch
  emptyDir: {}
{{- with .Values.server.caSecret }}
- name: ca
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}

{{- /* Time to be told, to drain, and to say goodbye: before the kubelet kills. */ -}}
{{- define "oq.grace" -}}
{{- add (int .) 15 -}}
{{- end -}}

{{- define "oq.probes" -}}
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 20
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
{{- end -}}
