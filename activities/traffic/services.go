package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// pin narrows the stable Service to the stable pods. It writes only when one of them is ready: no request may reach an
// empty Service.
func (a *Activities) pin(ctx context.Context, j job) (bool, error) {
	p := j.stable()
	b, err := a.borrowed(ctx, p, deletedError)
	if err != nil {
		return false, err
	}
	w, err := b.PlanWrite(j.hand, traffic.Pinned(j.version))
	if err != nil || w == nil {
		return false, err
	}
	narrowed := jsonpatch.Apply(b.Live(), w.Changes)
	found, err := a.pods(ctx, p.Namespace, traffic.SelectorOf(narrowed))
	if err != nil {
		return false, err
	}
	switch {
	case found.all == 0:
		return false, noPods("%s is not pinned yet: no pod with %s=%s is ready, since none is left", p, j.version.Label,
			j.version.Hash)
	case len(found.ready) == 0:
		return false, notYet("%s is not pinned yet: no pod with %s=%s is ready", p, j.version.Label, j.version.Hash)
	}
	return a.write(ctx, p, b.Live(), w)
}

// canaryService creates or updates <service>-canary.
func (a *Activities) canaryService(ctx context.Context, j job) (bool, error) {
	b, err := a.borrowed(ctx, j.stable(), deletedError)
	if err != nil {
		return false, err
	}
	desired := traffic.CanaryService(b.Original(), j.pair.Canary, j.version)
	return a.ensureCreated(ctx, j.canary(), j.hand, desired, traffic.CanarySelectorPaths)
}

// unserved returns the reason why a Service would not serve requests, "" if it has a ready endpoint of a ready pod.
func (a *Activities) unserved(ctx context.Context, p place) (string, error) {
	live, err := a.get(ctx, p)
	if err != nil {
		return "", err
	}
	if live == nil {
		return p.String() + " does not exist", nil
	}
	pods, err := a.readyPods(ctx, p.Namespace, traffic.SelectorOf(live))
	if err != nil {
		return "", err
	}
	if len(pods) == 0 {
		return p.String() + " has no ready pod", nil
	}
	endpoints, err := a.endpoints(ctx, p)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(endpoints, func(e string) bool { return pods[e] }) {
		return "", nil
	}
	return p.String() + " has ready pods, and no endpoint for any of them yet", nil
}

// sendsRequests reports whether any requests go to the new version.
func sendsRequests(t strategy.Traffic) bool {
	return len(t.Matches) > 0 || t.Weight != nil && *t.Weight > 0
}

// notYet returns a failure.NotReady.
func notYet(format string, args ...any) error {
	return failure.New(failure.NotReady, format, args...)
}

var endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// errNoPods means that a Service has no pod at all. A deleted pod is replaced within a moment, so the job waits a few
// seconds, but not until the deadline: there may be no controller that creates one.
var errNoPods = errors.New("no pods")

func noPods(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errNoPods, notYet(format, args...))
}

// selected are the pods that match a selector, without those being deleted.
type selected struct {
	all int
	// ready are the names of the ready ones.
	ready map[string]bool
}

func (a *Activities) pods(ctx context.Context, namespace string, selector map[string]string) (selected, error) {
	out := selected{ready: map[string]bool{}}
	_, err := a.cluster.Pods(ctx, namespace, labels.SelectorFromSet(selector).String(), func(pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil {
			return
		}
		out.all++
		if podstatus.Ready(pod) {
			out.ready[pod.Name] = true
		}
	})
	return out, err
}

// readyPods returns the names of the ready pods that match a selector.
func (a *Activities) readyPods(ctx context.Context, namespace string, selector map[string]string) (map[string]bool,
	error) {
	found, err := a.pods(ctx, namespace, selector)
	return found.ready, err
}

// endpoints returns the names of the pods behind the ready endpoints of a Service.
func (a *Activities) endpoints(ctx context.Context, p place) ([]string, error) {
	list, err := a.cluster.List(ctx, endpointSlices, p.Namespace,
		labels.Set{discoveryv1.LabelServiceName: p.Name}.String())
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list {
		slice, err := readyEndpoints(&list[i])
		if err != nil {
			return nil, err
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil {
				out = append(out, e.TargetRef.Name)
			}
		}
	}
	return out, nil
}

// readyEndpoints returns an EndpointSlice with its ready endpoints only.
func readyEndpoints(o *unstructured.Unstructured) (slice discoveryv1.EndpointSlice, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &slice)
	slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return !ptr.Deref(e.Conditions.Ready, true)
	})
	return slice, err
}
