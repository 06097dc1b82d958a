package serving

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
)

// The indexes of the watch.
const (
	// byDomain indexes the servings by the domains of their parties.
	byDomain = "domain"
	// marked indexes the servings whose status names an unreachable party, underWay those with an operation in
	// progress; their only value is yes.
	marked, underWay = "marked", "under way"
	yes              = "yes"
)

func partyDomains(kd *kuscia.KusciaDeployment) []string {
	domains := phrase.Texts(serving.Members(kd), func(member serving.PartyTarget) string { return member.Domain })
	slices.Sort(domains)
	return slices.Compact(domains)
}

// whether returns an index of the servings for which a condition is true.
func whether(is func(kd *kuscia.KusciaDeployment) bool) func(kd *kuscia.KusciaDeployment) []string {
	return func(kd *kuscia.KusciaDeployment) []string {
		if is(kd) {
			return []string{yes}
		}
		return nil
	}
}

func namesUnreachable(kd *kuscia.KusciaDeployment) bool { return !serving.IsMarkedUnreachable(kd, nil) }

func isUnderWay(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return op != nil && !op.Done && op.WorkflowID != ""
}

// indexed returns the servings with this value of an index, in order of name. They must not be modified.
func (c *Controller) indexed(by, value string) []*kuscia.KusciaDeployment {
	return slices.SortedFunc(slices.Values(c.cached.By(by, value)), byName)
}

func byName(a, b *kuscia.KusciaDeployment) int { return strings.Compare(a.Name, b.Name) }

// affected returns the servings whose status or operation may need an update after a check: those with an unreachable
// party, those that name one, and those with an operation in progress.
func (c *Controller) affected(of map[string]string, found map[string]party.Presence) []*kuscia.KusciaDeployment {
	all := append(c.indexed(marked, yes), c.indexed(underWay, yes)...)
	for domain, queue := range of {
		if found[queue].Reachable == party.Unreachable {
			all = append(all, c.indexed(byDomain, domain)...)
		}
	}
	slices.SortFunc(all, byName)
	return slices.Compact(all)
}

// recordedQueue returns the queue of a domain as recorded in a serving; "" if there is none.
func (c *Controller) recordedQueue(domain string) (queue string) {
	for _, kd := range c.indexed(byDomain, domain) {
		for _, member := range serving.Members(kd) {
			if member.Domain == domain {
				queue = cmp.Or(queue, member.Queue)
			}
		}
	}
	return queue
}

// reduce keeps of a KusciaDeployment what presence and decisions need: input configs and versions are large. Of an
// undecodable object only the name is kept: without its finalizer, it is read again when it is reconciled.
func (c *Controller) reduce(u *unstructured.Unstructured) (*kuscia.KusciaDeployment, error) {
	unstructured.RemoveNestedField(u.Object, "spec", "inputConfig")
	unstructured.RemoveNestedField(u.Object, "status", "served", "version")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations",
		"kubectl.kubernetes.io/last-applied-configuration")
	kd := &kuscia.KusciaDeployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, kd); err != nil {
		c.options.Log.Warn("cannot decode a KusciaDeployment: its unreachable parties are not reported until it is "+
			"corrected", "name", u.GetName(), "error", err)
		kd = &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName()}}
	}
	return kd, nil
}
