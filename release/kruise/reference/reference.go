// Package reference recognises Kruise Rollouts itself on a cluster. It works on the same objects as Slipway does under the same names: both at
// once would release each workload twice, and write over each other's status.
package reference

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"

	"slipway.io/slipway/release/kruise/definition"
)

// What its installations are called: the Helm chart's names, and those that are the same however it was installed.
// (https://github.com/openkruise/charts/tree/master/versions/kruise-rollout)
const (
	// Namespace and Deployment are where its controller runs, unless somebody has chosen other names.
	Namespace  = "kruise-rollout"
	Deployment = "kruise-rollout-controller-manager"
	// Scripts is the ConfigMap beside its controller with traffic scripts of the cluster's.
	Scripts = "kruise-rollout-configuration"
	// Lease is by which its controllers elect the one that works, in the namespace where they run.
	Lease = "71ddec2c.kruise.io"

	service = "kruise-rollout-webhook-service"
)

// configurations are the names of its webhook configurations.
var configurations = []string{"kruise-rollout-mutating-webhook-configuration", "kruise-rollout-validating-webhook-configuration"}

// paths are where its controller serves webhooks that no other product has.
var paths = []string{"/mutate-unified-workload", "/validate-rollouts-kruise-io-rollout"}

// leaseDefault is how long a lease holds that doesn't say it.
const leaseDefault = 15 * time.Second

// Part is one object of Kruise Rollouts, and the command that takes it away. Runs says that it is a controller.
type Part struct {
	What, Remove string
	Runs         bool
}

// Webhooks is a webhook configuration as a part of Kruise Rollouts; false when it is another product's. Kind is the configuration's.
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

// Controller is the Deployment of its controller as a part; false when that is to have no pods.
func Controller(d *appsv1.Deployment) (Part, bool) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return Part{}, false
	}
	return Part{fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name), fmt.Sprintf("kubectl -n %s delete deployment %s", d.Namespace, d.Name), true}, true
}

// Leader is a lease by which its controllers elect one as a part; false when no controller has renewed it in time: what is removed leaves its
// lease behind.
func Leader(l *coordination.Lease, now time.Time) (Part, bool) {
	s := l.Spec
	if l.Name != Lease || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
		return Part{}, false
	}
	holds := leaseDefault
	if s.LeaseDurationSeconds != nil {
		holds = time.Duration(*s.LeaseDurationSeconds) * time.Second
	}
	if now.After(s.RenewTime.Add(holds)) {
		return Part{}, false
	}
	pod, _, _ := strings.Cut(*s.HolderIdentity, "_")
	return Part{fmt.Sprintf("its controller, pod %s/%s", l.Namespace, pod), fmt.Sprintf("delete the Deployment of that pod in namespace %s", l.Namespace), true}, true
}

// ForeignDefinition is why Slipway leaves Rollouts alone whose definition another product has brought, and what to do about that.
var ForeignDefinition = fmt.Sprintf("the definition of Rollouts on this cluster is another product's. To let Slipway take it over: "+
	"kubectl label crd %s %s=%s --overwrite", definition.Name, definition.LabelManagedBy, definition.ManagedBySlipway)

// Beside is what else releases what Rollouts name on a cluster: Says names it and how it is removed, "" for nothing. Runs says that a controller of it is
// at work, which does what its objects are to have done.
type Beside struct {
	Says string
	Runs bool
}

// BesideOf is what was found, as whoever releases has to know it.
func BesideOf(found []Part) Beside {
	return Beside{Refusal(found), slices.ContainsFunc(found, func(p Part) bool { return p.Runs })}
}

// Refusal says what was found and how it is removed; "" for nothing.
func Refusal(found []Part) string {
	if len(found) == 0 {
		return ""
	}
	var what, remove []string
	for _, p := range found {
		what, remove = append(what, p.What), append(remove, p.Remove)
	}
	return fmt.Sprintf("Kruise Rollouts is installed on this cluster (%s), and two controllers can't release the same workloads. To remove it: %s",
		strings.Join(what, ", "), strings.Join(remove, "; "))
}
