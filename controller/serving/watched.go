package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
)

// What the watch finds servings by.
const (
	// byDomain finds those that have a party of a domain.
	byDomain = "domain"
	// marked finds those whose status says that a party cannot be reached, underWay those with an operation that is not over, by "".
	marked, underWay = "marked", "under way"
)

func indexers() cache.Indexers {
	return cache.Indexers{
		byDomain: index(func(kd *kuscia.KusciaDeployment) (domains []string) {
			for _, member := range serving.Members(kd) {
				domains = append(domains, member.Domain)
			}
			return slices.Compact(slices.Sorted(slices.Values(domains)))
		}),
		marked:   index(whether(func(kd *kuscia.KusciaDeployment) bool { return !serving.IsMarkedUnreachable(kd, nil) })),
		underWay: index(whether(isUnderWay)),
	}
}

// index is an index of servings; objects that cannot be read are in none.
func index(values func(kd *kuscia.KusciaDeployment) []string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		kd, err := servingOf(object)
		if err != nil {
			return nil, nil
		}
		return values(kd), nil
	}
}

func whether(is func(kd *kuscia.KusciaDeployment) bool) func(kd *kuscia.KusciaDeployment) []string {
	return func(kd *kuscia.KusciaDeployment) []string {
		if is(kd) {
			return []string{""}
		}
		return nil
	}
}

func isUnderWay(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return op != nil && !op.Done && op.WorkflowID != ""
}

// indexed are the servings of a value of an index, in order of name. They are not to be changed.
func (c *Controller) indexed(by, value string) []*kuscia.KusciaDeployment {
	objects, err := c.informer.GetIndexer().ByIndex(by, value)
	if err != nil {
		panic(err) // there is that index
	}
	all := make([]*kuscia.KusciaDeployment, 0, len(objects))
	for _, object := range objects {
		if kd, err := servingOf(object); err == nil {
			all = append(all, kd)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

func byName(a, b *kuscia.KusciaDeployment) int { return strings.Compare(a.Name, b.Name) }

// concerned are the servings whose status, or whose operation, may have to hear of what was found of the queues of domains: all those of somebody who is away, those
// that say so of somebody, and those with an operation under way.
func (c *Controller) concerned(of map[string]string, found map[string]party.Presence) []*kuscia.KusciaDeployment {
	all := append(c.indexed(marked, ""), c.indexed(underWay, "")...)
	for domain, queue := range of {
		if found[queue].Reachable == party.Unreachable {
			all = append(all, c.indexed(byDomain, domain)...)
		}
	}
	slices.SortFunc(all, byName)
	return slices.Compact(all)
}

// recordedQueue is the queue of a domain as a serving has kept it; "" when none has.
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

// servingOf is an object of the watch, which is not to be changed.
func servingOf(object any) (*kuscia.KusciaDeployment, error) {
	kd, is := object.(*kuscia.KusciaDeployment)
	if !is {
		return nil, fmt.Errorf("%T is no KusciaDeployment", object)
	}
	return kd, nil
}

// keep keeps of a KusciaDeployment what the presence of its parties needs, and what decides whether there is something to do: input configs and versions are
// large. One that cannot be read stays as it came, and is read again by whoever looks after it.
func (c *Controller) keep(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	unstructured.RemoveNestedField(u.Object, "spec", "inputConfig")
	unstructured.RemoveNestedField(u.Object, "status", "served", "version")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	kd := &kuscia.KusciaDeployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, kd); err != nil {
		c.options.Log.Warn("a KusciaDeployment cannot be read: nobody is told whether its parties are away until it is put right", "name", u.GetName(), "error", err)
		return u, nil
	}
	return kd, nil
}
