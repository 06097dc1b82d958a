package operation

import "slipway.io/slipway/release/catalog"

// The kinds of workload that plans act on.
const (
	APIVersion      = catalog.APIVersion
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)
