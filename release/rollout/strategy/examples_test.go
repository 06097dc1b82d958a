package strategy

// The YAML examples of the source document, without their comments. What is no YAML there is mended: tabs, and the dots that stand for the rest.
const (
	exampleBeta = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  name: rollouts-demo
  namespace: default
spec:
  workloadRef:
    apiVersion: apps/v1
    kind: Deployment
    name: echoserver
  strategy:
    canary:
      enableExtraWorkloadForCanary: true
      steps:
      - traffic: 5%
        pause: {}
        replicas: 1
      - traffic: 50%
        replicas: 50%
        pause:
          duration: 7200
      - traffic: 100%
        replicas: 100%
      trafficRoutings:
      - service: echoserver
        ingress:
          name: echoserver
        gracePeriodSeconds: 10
`
	exampleAlpha = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: Rollout
metadata:
  name: rollouts-demo
  namespace: defaults
  annotations:
    rollouts.kruise.io/rolling-style: partition
spec:
  objectRef:
    workloadRef:
      apiVersion: apps/v1
      kind: Deployment
      name: echoserver
  strategy:
    canary:
      steps:
      - weight: 5
        pause: {}
        replicas: 1
      - replicas: 50%
        pause:
          duration: 7200
      - replicas: 100%
      trafficRoutings:
      - service: echoserver
        ingress:
          name: echoserver
        gracePeriodSeconds: 10
`
	exampleRefBeta = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  namespace: your-workload-ns
spec:
  workloadRef:
    apiVersion: apps/v1
    kind: StatefulSet
    name: your-workload-name
`
	exampleRefAlpha = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: Rollout
metadata:
  namespace: your-workload-ns
spec:
  objectRef:
    workloadRef:
      apiVersion: apps/v1
      kind: StatefulSet
      name: your-workload-name
`
	exampleRoutings = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  namespace: <your-workload-ns>
spec:
  strategy:
    canary:
      trafficRoutings:
      - service: <service-name-that-is-related-your-workload>
        ingress:
          classType: <traffic-type>
          name: <ingress-name-that-is-related-the-service>
        gracePeriodSeconds: 10
      - service: <service-name-that-is-related-your-workload>
        gateway:
          httpRouteName: <gateway-api-httpRoute-name>
        gracePeriodSeconds: 10
      - service: <service-name-that-is-related-your-workload>
        customNetworkRefs:
        - apiVersion: <your-resource-apiVersion>
          kind: <your-resource-kind>
          name: <your-resource-name>
        gracePeriodSeconds: 10
`
	exampleSharedBeta = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  name: rollout-b
spec:
  workloadRef:
    apiVersion: apps/v1
    kind: Deployment
    name: spring-cloud-b
  strategy:
    canary:
      steps:
        - pause: {}
          replicas: 1
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
    trafficRoutingRef: mse-traffic
`
	exampleSharedAlpha = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: Rollout
metadata:
  name: rollout-b
  annotations:
    rollouts.kruise.io/trafficrouting: mse-traffic
spec:
  objectRef:
    workloadRef:
      apiVersion: apps/v1
      kind: Deployment
      name: spring-cloud-b
  strategy:
    canary:
      steps:
        - pause: {}
          replicas: 1
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
`
	exampleCanaryBeta = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  namespace: your-workload-ns
spec:
  strategy:
    canary:
      enableExtraWorkloadForCanary: true
      steps:
      - traffic: 5%
        replicas: 1 or 10%
        pause:
          duration: {}
        matches:
        - headers:
          - type: Exact
            name: matched-header-name
            value: matched-header-value
      - traffic: 10%
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
`
	exampleCanaryAlpha = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: Rollout
metadata:
  namespace: your-workload-ns
spec:
  strategy:
    canary:
      steps:
      - weight: 5
        replicas:
        pause:
          duration: 1000
        matches:
          - headers:
            - type: Exact
              name: matched-header-name
              value: matched-header-value
      - weight: 10
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
`
	exampleBlueGreen = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  namespace: your-workload-ns
spec:
  strategy:
    blueGreen:
      steps:
      - replicas: 100%
        traffic: 0%
        pause:
          duration: {}
      - replicas: 100%
        matches:
        - headers:
          - type: Exact
            name: matched-header-name
            value: matched-header-value
      - replicas: 100%
        traffic: 100%
`
	exampleStatusCanary = `
kind: Rollout
status:
  phase: Healthy
  observedGeneration: 2
  canaryStatus:
    canaryReplicas: 10
    observedRolloutID: "20230313093823"
`
)
