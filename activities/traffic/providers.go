package traffic

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// job is one routing of a request, with the requested traffic.
type job struct {
	namespace string
	routing   strategy.Routing
	pair      traffic.ServicePair
	asks      strategy.Traffic
	hand      traffic.Claimant
	version   traffic.Version
}

// stable returns the job's stable Service, canary its canary Service.
func (j job) stable() place { return services.at(j.namespace, j.pair.Stable) }

func (j job) canary() place { return services.at(j.namespace, j.pair.Canary) }

// provider routes requests to Services. ensure and finalise read the objects, write the differences, and report whether
// they wrote. A change is verified by another round that finds nothing left to write.
type provider interface {
	// initialise checks without writing that the routing objects exist and route to the Service; it fails with
	// failure.Refused.
	initialise(ctx context.Context, a *Activities, j job) error
	// try checks without writing whether the routes can do what the job asks; it fails with failure.Refused.
	try(ctx context.Context, a *Activities, j job) error
	// ensure changes the routes to what the job asks.
	ensure(ctx context.Context, a *Activities, j job) (bool, error)
	// finalise restores or removes the routing objects.
	finalise(ctx context.Context, a *Activities, j job) (bool, error)
	// places returns the objects that the provider reads and writes.
	places(ctx context.Context, a *Activities, j job) ([]place, error)
}

func providerOf(r strategy.Routing) provider {
	if r.Ingress != nil {
		return ingressProvider{}
	}
	return borrowingProvider{}
}

// jobs returns the routings of a request.
func jobs(req rollout.RouteRequest) []job {
	var out []job
	for _, r := range req.Routings {
		pair := traffic.ServicePair{Stable: r.Service, Canary: r.CanaryService()}
		if req.NoCanary {
			pair.Canary = r.Service
		}
		asks := req.Traffic
		if req.Action == rollout.RouteToNew {
			all := int32(100)
			asks = strategy.Traffic{Weight: &all, RequestHeaderModifier: req.Traffic.RequestHeaderModifier}
		}
		out = append(out, job{
			namespace: req.Workload.Namespace, routing: r, pair: pair, asks: asks,
			hand: traffic.Claimant{Claim: req.Claim, TakeOver: req.TakeOver, Overwrite: req.Overwrite,
				WriteOriginalSpec: req.Declared},
			version: traffic.Version{
				Workload: req.Workload.WorkloadRef.Name, Label: req.Workload.WorkloadRef.Lookup().RevisionLabel,
				Hash:   req.CanaryHash,
				Labels: req.CanaryLabels, Claim: req.Claim,
			},
		})
	}
	return out
}

// existing reads an object; absent makes the error if it does not exist.
func (a *Activities) existing(ctx context.Context, p place, absent func(place) error) (traffic.Object, error) {
	live, err := a.get(ctx, p)
	if err == nil && live == nil {
		err = absent(p)
	}
	return live, err
}

// borrowed reads an object together with what was saved on it.
func (a *Activities) borrowed(ctx context.Context, p place, absent func(place) error) (traffic.Borrowed, error) {
	live, err := a.existing(ctx, p, absent)
	if err != nil {
		return traffic.Borrowed{}, err
	}
	return traffic.ReadBorrowed(p.String(), live, p.borrows)
}

// derivation computes the desired object from its original, and the JSON pointers at which they differ.
type derivation func(original traffic.Object) (traffic.Object, []string, error)

// borrow changes an object to what derive makes of its original.
func (a *Activities) borrow(ctx context.Context, p place, h traffic.Claimant, derive derivation) (bool, error) {
	b, err := a.borrowed(ctx, p, deletedError)
	if err != nil {
		return false, err
	}
	w, err := b.PlanWrite(h, derive)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, b.Live(), w)
}

// restore restores a borrowed object; a deleted one needs nothing.
func (a *Activities) restore(ctx context.Context, p place, h traffic.Claimant) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	b, err := traffic.ReadBorrowed(p.String(), live, p.borrows)
	if err != nil {
		return false, err
	}
	w, err := b.PlanRestore(h)
	if err != nil || w == nil {
		return false, err
	}
	return true, a.sendRestore(ctx, p, live, w)
}

// ensureCreated creates an object of the release, or changes it to the desired content.
func (a *Activities) ensureCreated(ctx context.Context, p place, h traffic.Claimant, desired traffic.Object,
	paths []string) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil {
		return false, err
	}
	if live == nil {
		return true, a.create(ctx, p, desired, paths)
	}
	w, err := traffic.NewCreated(p.String(), live).PlanWrite(h, desired, paths)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, live, w)
}

// removeCreated deletes an object that the release created; an object that no release created is left alone.
func (a *Activities) removeCreated(ctx context.Context, p place, h traffic.Claimant) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	c := traffic.NewCreated(p.String(), live)
	if c.Foreign() {
		return false, nil
	}
	if err := c.CheckClaim(h); err != nil {
		return false, err
	}
	return true, a.remove(ctx, p, live)
}

// ingressProvider routes by a separate Ingress <ingress>-canary. It does not change the user's Ingress.
type ingressProvider struct{}

func (ingressProvider) place(j job) (stable, canary place) {
	name := j.routing.Ingress.Name
	return ingresses.at(j.namespace, name), ingresses.at(j.namespace, name+strategy.CanarySuffix)
}

func (p ingressProvider) places(_ context.Context, _ *Activities, j job) ([]place, error) {
	stable, canary := p.place(j)
	return []place{stable, canary}, nil
}

// desired returns the desired canary Ingress.
func (p ingressProvider) desired(ctx context.Context, a *Activities, j job, live traffic.Object) (traffic.Object,
	error) {
	class := j.routing.Ingress.Class
	script := traffic.IngressScript(class)
	raw, name, err := a.evaluate(ctx, j, script, traffic.IngressInput(live, class, j.pair, j.asks))
	if err != nil {
		return nil, err
	}
	annotations, err := traffic.IngressOutput(name, raw)
	if err != nil {
		return nil, err
	}
	return traffic.CanaryIngress(live, j.pair, annotations, j.version)
}

func (p ingressProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, deletedError)
	if err != nil {
		return false, err
	}
	desired, err := p.desired(ctx, a, j, live)
	if err != nil {
		return false, err
	}
	return a.ensureCreated(ctx, canary, j.hand, desired, traffic.IngressPaths(desired))
}

func (p ingressProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	_, canary := p.place(j)
	return a.removeCreated(ctx, canary, j.hand)
}

func (p ingressProvider) initialise(ctx context.Context, a *Activities, j job) error {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, notFoundError)
	if err != nil {
		return err
	}
	if _, is := traffic.CanaryAnnotations(live); is {
		return failure.New(failure.Refused, "%s is itself a canary by its annotations: name the Ingress that it is a "+
			"canary of", stable)
	}
	if _, err := traffic.CanaryIngress(live, j.pair, nil, j.version); err != nil {
		return err
	}
	if _, _, err := a.source(ctx, j.namespace, traffic.IngressScript(j.routing.Ingress.Class)); err != nil {
		return err
	}
	if err := p.checkNoOtherCanary(ctx, a, j, live); err != nil {
		return err
	}
	return a.checkCreatable(ctx, canary)
}

// canaryCacheTime is how long the list of a namespace's canaries is cached: hundreds of releases may start in it in one
// second.
const canaryCacheTime = time.Second

// checkNoOtherCanary refuses if there is another canary of the same host and path that no release made. A cached canary
// is confirmed by a fresh read, since it may have been deleted.
func (p ingressProvider) checkNoOtherCanary(ctx context.Context, a *Activities, j job, live traffic.Object) error {
	read := func(ctx context.Context) ([]unstructured.Unstructured, error) {
		return a.foreignCanaries(ctx, j.namespace)
	}
	canaries, err := recent.Get(ctx, &a.canaryCache, j.namespace, canaryCacheTime, read)
	if err != nil || secondCanary(j, live, canaries) == nil {
		return err
	}
	if canaries, err = read(ctx); err != nil {
		return err
	}
	return secondCanary(j, live, canaries)
}

// secondCanary returns the refusal of a second canary of one host and path; nil if there is none.
func secondCanary(j job, live traffic.Object, canaries []unstructured.Unstructured) error {
	for i := range canaries {
		if place := traffic.SecondCanary(live, canaries[i].Object, j.pair); place != "" {
			return failure.New(failure.Refused, "%s is already a canary of %s that no release made: a controller "+
				"supports only one canary of a "+
				"host and path; delete it first", ingresses.at(j.namespace, canaries[i].GetName()), place)
		}
	}
	return nil
}

// foreignCanaries lists the canary Ingresses of a namespace that no release made. Those of other releases belong to
// workloads with an Ingress of their own.
func (a *Activities) foreignCanaries(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	list, err := a.cluster.List(ctx, ingresses.gvr, namespace, "")
	return slices.DeleteFunc(list, func(o unstructured.Unstructured) bool {
		_, is := traffic.CanaryAnnotations(o.Object)
		return !is || !traffic.NewCreated(ingresses.at(namespace, o.GetName()).String(), o.Object).Foreign()
	}), err
}

func (p ingressProvider) try(ctx context.Context, a *Activities, j job) error {
	stable, _ := p.place(j)
	live, err := a.existing(ctx, stable, notFoundError)
	if err != nil {
		return err
	}
	_, err = p.desired(ctx, a, j, live)
	return err
}

// borrowingProvider changes the user's own objects: the rules of an HTTPRoute, or custom objects by their scripts.
type borrowingProvider struct{}

// route is one object that routes requests.
type route struct {
	place
	// initialise is provider.initialise for this object.
	initialise func() error
	derive     derivation
}

func (p borrowingProvider) routes(ctx context.Context, a *Activities, j job) ([]route, error) {
	if j.routing.HTTPRoute != "" {
		k, refused := a.kinds.httpRoutes()
		var f *failure.Error
		switch {
		case errors.As(refused, &f):
			k = httpRoutes // an object of a kind that the cluster no longer has needs no change
		case refused != nil:
			return nil, refused
		}
		at := k.at(j.namespace, j.routing.HTTPRoute)
		return []route{{place: at, derive: traffic.HTTPRoute(j.pair, j.asks), initialise: func() error {
			if refused != nil {
				return refused
			}
			return a.attemptBorrow(ctx, at, traffic.HTTPRoute(j.pair, strategy.Traffic{}))
		}}}, nil
	}
	var out []route
	for _, ref := range j.routing.Custom {
		k, err := a.kinds.lookup(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		at, script := k.at(j.namespace, ref.Name), traffic.CustomScript(ref)
		out = append(out, route{place: at, initialise: func() error {
			if _, err := a.existing(ctx, at, notFoundError); err != nil {
				return err
			}
			_, _, err := a.source(ctx, j.namespace, script)
			return err
		}, derive: func(original traffic.Object) (traffic.Object, []string, error) {
			raw, name, err := a.evaluate(ctx, j, script, traffic.CustomInput(original, j.pair, j.asks))
			if err != nil {
				return nil, nil, err
			}
			return traffic.Custom(name, raw)(original)
		}})
	}
	return out, nil
}

func (p borrowingProvider) places(ctx context.Context, a *Activities, j job) ([]place, error) {
	var out []place
	_, err := p.each(ctx, a, j, func(r route) (bool, error) {
		out = append(out, r.place)
		return false, nil
	})
	return out, err
}

func (p borrowingProvider) initialise(ctx context.Context, a *Activities, j job) error {
	_, err := p.each(ctx, a, j, func(r route) (bool, error) { return false, r.initialise() })
	return err
}

func (p borrowingProvider) try(ctx context.Context, a *Activities, j job) error {
	_, err := p.each(ctx, a, j, func(r route) (bool, error) { return false, a.attemptBorrow(ctx, r.place, r.derive) })
	return err
}

func (p borrowingProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	return p.each(ctx, a, j, func(r route) (bool, error) { return a.borrow(ctx, r.place, j.hand, r.derive) })
}

// finalise restores the objects in reverse order: an object that refers to another is restored first.
func (p borrowingProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	j.routing.Custom = slices.Clone(j.routing.Custom)
	slices.Reverse(j.routing.Custom)
	return p.each(ctx, a, j, func(r route) (bool, error) { return a.restore(ctx, r.place, j.hand) })
}

// each calls do with one object after the other, and reports whether any call wrote.
func (p borrowingProvider) each(ctx context.Context, a *Activities, j job, do func(route) (bool, error)) (wrote bool,
	err error) {
	all, err := p.routes(ctx, a, j)
	for _, r := range all {
		w, err := do(r)
		wrote = wrote || w
		if err != nil {
			return wrote, err
		}
	}
	return wrote, err
}

// notFoundError is the refusal of an object that does not exist.
func notFoundError(p place) error {
	return failure.New(failure.Refused, "%s does not exist: create it, or name another", p)
}

// preflightHand allows a preflight to read an object regardless of its holder, which findHolder reports.
func preflightHand(holder string) traffic.Claimant {
	return traffic.Claimant{Claim: "preflight", TakeOver: holder}
}

// attemptBorrow decides what borrow would write, without writing it.
func (a *Activities) attemptBorrow(ctx context.Context, p place, derive derivation) error {
	b, err := a.borrowed(ctx, p, notFoundError)
	if err != nil {
		return err
	}
	_, err = b.PlanWrite(preflightHand(b.Holder()), derive)
	return err
}

// checkCreatable refuses if an object that the release would create already exists and no release created it.
func (a *Activities) checkCreatable(ctx context.Context, p place) error {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return err
	}
	return traffic.NewCreated(p.String(), live).CheckClaim(preflightHand(traffic.HolderOf(live)))
}
