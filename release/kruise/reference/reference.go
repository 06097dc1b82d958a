// Package reference detects an installation of Kruise Rollouts on a cluster. It works on the same objects as Slipway
// under the same names: together they would release each workload twice and overwrite each other's status.
package reference

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/kruise/definition"
)

// The names of its installations: those of the Helm chart, and those that do not depend on how it was installed.
// (https://github.com/openkruise/charts/tree/master/versions/kruise-rollout)
const (
	// Namespace and Deployment are the chart's names of its controller.
	Namespace  = "kruise-rollout"
	Deployment = "kruise-rollout-controller-manager"
	// Scripts is the ConfigMap in its controller's namespace with the cluster's own traffic scripts.
	Scripts = "kruise-rollout-configuration"
	// Lease is the leader election lease of its controllers, in the namespace where they run.
	Lease = "71ddec2c.kruise.io"

	service = "kruise-rollout-webhook-service"
)

// configurations are the names of its webhook configurations.
var configurations = []string{"kruise-rollout-mutating-webhook-configuration",
	"kruise-rollout-validating-webhook-configuration"}

// paths are the webhook paths of its controller that no other product has.
var paths = []string{"/mutate-unified-workload", "/validate-rollouts-kruise-io-rollout"}

// leaseDefaultSeconds is the duration of a lease that does not specify one.
const leaseDefaultSeconds = 15

// Part is one object of Kruise Rollouts, and the command that removes it. Runs is true for a running controller.
type Part struct {
	What, Remove string
	Runs         bool
}

// Webhooks returns a webhook configuration as a part of Kruise Rollouts; false if it belongs to another product. kind
// is the kind of the configuration.
func Webhooks(kind, name string, clients []admission.WebhookClientConfig) (Part, bool) {
	if !slices.Contains(configurations, name) && !slices.ContainsFunc(clients, isWebhook) {
		return Part{}, false
	}
	return Part{What: kind + " " + name, Remove: "kubectl delete " + strings.ToLower(kind) + " " + name}, true
}

func isWebhook(c admission.WebhookClientConfig) bool {
	s := c.Service
	return s != nil && (s.Name == service || s.Path != nil && slices.Contains(paths, *s.Path))
}

// Controller returns the controller's Deployment as a part; false if it is scaled to 0.
func Controller(d *appsv1.Deployment) (Part, bool) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return Part{}, false
	}
	return Part{fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name),
		fmt.Sprintf("kubectl -n %s delete deployment %s", d.Namespace, d.Name), true}, true
}

// Leader returns the controller that holds a leader election lease as a part; false if the lease has expired: a removed
// controller leaves its lease behind.
func Leader(l *coordination.Lease, now time.Time) (Part, bool) {
	s := l.Spec
	if l.Name != Lease || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
		return Part{}, false
	}
	holds := time.Duration(ptr.Deref(s.LeaseDurationSeconds, leaseDefaultSeconds)) * time.Second
	if now.After(s.RenewTime.Add(holds)) {
		return Part{}, false
	}
	pod, _, _ := strings.Cut(*s.HolderIdentity, "_")
	return Part{fmt.Sprintf("its controller, pod %s/%s", l.Namespace, pod),
		fmt.Sprintf("delete the Deployment of that pod in namespace %s", l.Namespace), true}, true
}

// ForeignDefinition is the message for a definition of Rollouts that another product installed: why Slipway ignores its
// Rollouts, and how to change that.
var ForeignDefinition = fmt.Sprintf("the definition of Rollouts on this cluster belongs to another product. To let "+
	"Slipway take it over: "+
	"kubectl label crd %s %s=%s --overwrite", definition.Name, definition.LabelManagedBy, definition.ManagedBySlipway)

// OtherController describes another controller that releases the workloads of Rollouts on a cluster. Message names it
// and how to remove it, "" for none. Runs is true if it is running, so that it also executes its objects.
type OtherController struct {
	Message string
	Runs    bool
}

// OtherControllerOf summarises the detected parts.
func OtherControllerOf(found []Part) OtherController {
	return OtherController{Refusal(found), slices.ContainsFunc(found, func(p Part) bool { return p.Runs })}
}

// Refusal returns a message with the detected parts and how to remove them; "" for none.
func Refusal(found []Part) string {
	if len(found) == 0 {
		return ""
	}
	var what, remove []string
	for _, p := range found {
		what, remove = append(what, p.What), append(remove, p.Remove)
	}
	return fmt.Sprintf("Kruise Rollouts is installed on this cluster (%s), and two controllers can't release the "+
		"same workloads. To remove it: %s", strings.Join(what, ", "), strings.Join(remove, "; "))
}
