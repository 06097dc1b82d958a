package strategy

// notMeasured is why the keys that judge a release by metrics have no counterpart.
const notMeasured = "releases are not judged by metrics yet; let a step wait with pause: {} and approve it when the " +
	"numbers are good"

// stepsOut is the counterpart of keys that compute the steps.
const stepsOut = "write the steps out: steps: [{replicas: 20%, traffic: 20%}, {replicas: 40%, traffic: 40%}]"

// ownUpdate is where the limits of a workload's update come from.
const ownUpdate = "the workload's own update settings apply"

// foreign says what keys of other release tools are called here: of Argo Rollouts, Flagger, a Deployment and the older
// version of Rollout documents.
var foreign = map[string]string{
	// shares
	"setWeight":             "write traffic: 20% for the share of the requests, and replicas: 20% for that of the pods",
	"weight":                "in v1beta1 it is traffic, such as 20%",
	"weights":               "each step has its own traffic, such as 20%",
	"stepWeight":            stepsOut,
	"stepWeights":           stepsOut,
	"maxWeight":             "it is the traffic of the last step before all pods are new, such as 50%",
	"stepWeightPromotion":   stepsOut,
	"iterations":            "write the steps out, each with matches",
	"setCanaryScale":        "write replicas: 20%, or a number of pods",
	"dynamicStableScale":    "with enableExtraWorkloadForCanary all old pods stay; else they are replaced in place",
	"previewReplicaCount":   "it is the replicas of the step",
	"partition":             "it is the replicas of the step, counted in new pods",
	"maxSurge":              ownUpdate,
	"maxUnavailable":        ownUpdate,
	"setHeaderRoute":        "write matches: [{headers: [{name: …, value: …}]}]",
	"match":                 "write matches, in a step",
	"setMirrorRoute":        "requests can't be mirrored; send some to the new version by traffic or matches",
	"mirror":                "requests can't be mirrored; send some to the new version by traffic or matches",
	"canaryMetadata":        "write patchPodTemplateMetadata, with enableExtraWorkloadForCanary: true",
	"previewMetadata":       "write patchPodTemplateMetadata, with enableExtraWorkloadForCanary: true",
	"primaryReadyThreshold": "write failureThreshold, the number or share of new pods that may be unready",
	"canaryReadyThreshold":  "write failureThreshold, the number or share of new pods that may be unready",
	// routes
	"trafficRouting": "write trafficRoutings, a list: [{service: …, ingress: {name: …}}]",
	"canaryService":  "it is made for the release: <service>-canary, of the service in trafficRoutings",
	"stableService":  "it is the service in trafficRoutings",
	"activeService":  "it is the service in trafficRoutings",
	"previewService": "it is made for the release: <service>-canary, of the service in trafficRoutings",
	"stableIngress":  "write ingress: {name: …}",
	"ingressRef":     "write trafficRoutings: [{service: …, ingress: {name: …}}]",
	"nginx":          "write ingress: {classType: nginx, name: …}",
	"istio":          "write customNetworkRefs, with apiVersion, kind and name of the VirtualService",
	"virtualService": "write customNetworkRefs, with apiVersion, kind and name of the VirtualService",
	"httpRoute":      "write gateway: {httpRouteName: …}",
	"gatewayRefs":    "write gateway: {httpRouteName: …}, with the name of the HTTPRoute",
	// times and ends
	"interval":                "it is the pause of a step: pause: {duration: 1m}",
	"stepInterval":            "it is the pause of a step: pause: {duration: 1m}",
	"progressDeadlineSeconds": "write stepDeadlineSeconds, in policy",
	"progressDeadlineAbort":   "write onFailure: rollback, in policy",
	"autoPromotionEnabled":    "the last step waits with pause: {}, and continues by itself with pause: {duration: 0}",
	"autoPromotionSeconds":    "it is the pause of the last step: pause: {duration: 30s}",
	"scaleDownDelaySeconds":   "old pods stay until the pause of the last step ends: pause: {duration: 30s}",
	"rollbackWindow":          "write it in policy",
	"threshold":               notMeasured,
	"analysis":                notMeasured,
	"experiment":              notMeasured,
	"metrics":                 notMeasured,
	"webhooks":                notMeasured,
	"skipAnalysis":            notMeasured,
	"prePromotionAnalysis":    notMeasured,
	"postPromotionAnalysis":   notMeasured,
	// the workload
	"targetRef":       "write workloadRef, with apiVersion, kind and name",
	"scaleTargetRef":  "write workloadRef, with apiVersion, kind and name",
	"objectRef":       "in v1beta1 it is workloadRef",
	"rolloutID":       "in v1beta1 it is the annotation " + annotationRolloutID,
	"template":        "the pod template is the workload's own: name what changes, by images or templatePatch",
	"selector":        "it is the workload's own",
	"minReadySeconds": ownUpdate,
}
