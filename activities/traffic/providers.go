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

// route is an object that routes requests to Services: the canary Ingress, or an object of the user's that is changed,
// such as an HTTPRoute. ensure and finalise read the object, write the difference, and report whether they wrote. A
// change is verified by another round that finds nothing left to write.
type route struct {
	place
	// users is the user's object if place is one that the release creates.
	users place
	// initialise checks without writing that the object exists and routes to the Service; it fails with
	// failure.Refused.
	initialise func() error
	// try checks without writing whether the route can do what the job asks; it fails with failure.Refused.
	try func(trial) error
	// ensure changes the route to what the job asks.
	ensure func() (bool, error)
	// finalise restores or removes the object.
	finalise func() (bool, error)
	// subsets is true for a DestinationRule: it sends no requests, but defines what other routes send them to.
	subsets bool
}

// trial is how a route is tried: absent makes the error if the object does not exist, hand returns who changes an
// object with this holder.
type trial struct {
	absent func(place) error
	hand   func(holder string) traffic.Claimant
}

// inPreflight tries a route before the release starts.
var inPreflight = trial{notFoundError, preflightHand}

// atStep tries the job's routes before its writes.
func (j job) atStep() trial {
	return trial{deletedError, func(string) traffic.Claimant { return j.hand }}
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
			hand: traffic.Claimant{Claim: req.Claim, TakeOver: req.TakeOver, Ended: req.Ended,
				Overwrite: req.Overwrite, WriteOriginalSpec: req.Declared},
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
	if restorable, err := checkRestorable(p, live, h); !restorable {
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

// routes returns the objects of a job's routing.
func (a *Activities) routes(ctx context.Context, j job) ([]route, error) {
	switch {
	case j.routing.Ingress != nil:
		return []route{a.canaryIngress(ctx, j)}, nil
	case j.routing.HTTPRoute != "":
		k, refused := a.kinds.httpRoutes()
		var f *failure.Error
		switch {
		case errors.As(refused, &f):
			k = httpRoutes // an object of a kind that the cluster no longer has needs no change
		case refused != nil:
			return nil, refused
		}
		at := k.at(j.namespace, j.routing.HTTPRoute)
		return []route{a.borrowedRoute(ctx, at, j.hand, traffic.HTTPRoute(j.pair, j.asks), func() error {
			if refused != nil {
				return refused
			}
			return a.attemptBorrow(ctx, at, inPreflight, traffic.HTTPRoute(j.pair, strategy.Traffic{}))
		})}, nil
	}
	var out []route
	for _, ref := range j.routing.Custom {
		k, err := a.kinds.lookup(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		at, script := k.at(j.namespace, ref.Name), traffic.CustomScript(ref)
		derive := func(original traffic.Object) (traffic.Object, []string, error) {
			raw, found, err := a.evaluate(ctx, j, script, traffic.CustomInput(original, j.pair, j.asks))
			var refused *scriptRefusal
			if errors.As(err, &refused) && traffic.OfAnotherHost(ref, original, j.pair) {
				err = otherHost{err}
			}
			if err != nil {
				return nil, nil, err
			}
			return traffic.Custom(found, raw)(original)
		}
		r := a.borrowedRoute(ctx, at, j.hand, derive, func() error {
			if _, err := a.existing(ctx, at, notFoundError); err != nil {
				return err
			}
			_, err := a.script(ctx, j.namespace, script)
			return err
		})
		r.subsets = traffic.DefinesSubsets(ref)
		out = append(out, r)
	}
	return out, nil
}

// borrowedRoute is an object of the user's that derive changes.
func (a *Activities) borrowedRoute(ctx context.Context, at place, hand traffic.Claimant, derive derivation,
	initialise func() error) route {
	return route{place: at, initialise: initialise,
		try:      func(t trial) error { return a.attemptBorrow(ctx, at, t, derive) },
		ensure:   func() (bool, error) { return a.borrow(ctx, at, hand, derive) },
		finalise: func() (bool, error) { return a.restore(ctx, at, hand) }}
}

// eachRoute calls do with one object of a job after the other, and reports whether any call wrote.
func (a *Activities) eachRoute(ctx context.Context, j job, do func(route) (bool, error)) (wrote bool, err error) {
	all, err := a.routes(ctx, j)
	for _, r := range all {
		w, err := do(r)
		wrote = wrote || w
		if err != nil {
			return wrote, err
		}
	}
	return wrote, err
}

// finalise restores or removes the routes of a job, in reverse order: an object that refers to another is restored
// first.
func (a *Activities) finalise(ctx context.Context, j job) (bool, error) {
	j.routing.Custom = slices.Clone(j.routing.Custom)
	slices.Reverse(j.routing.Custom)
	return a.eachRoute(ctx, j, func(r route) (bool, error) { return r.finalise() })
}

// held returns the claims on the objects of a job's routing, and on these other objects.
func (a *Activities) held(ctx context.Context, j job, others ...place) ([]heldPlace, error) {
	if j.routing.Ingress != nil {
		others = append(others, ingresses.at(j.namespace, j.routing.Ingress.Name))
	}
	_, err := a.eachRoute(ctx, j, func(r route) (bool, error) {
		others = append(others, r.place)
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	var out []heldPlace
	for _, at := range others {
		live, err := a.get(ctx, at)
		if err != nil {
			return nil, err
		}
		if holder := traffic.HolderOf(live); holder != "" {
			out = append(out, heldPlace{at, holder})
		}
	}
	return out, nil
}

// heldPlace is an object on which a release has a claim.
type heldPlace struct {
	place
	holder string
}

// canaryIngress is the separate Ingress <ingress>-canary. The user's Ingress is not changed.
func (a *Activities) canaryIngress(ctx context.Context, j job) route {
	name, class := j.routing.Ingress.Name, j.routing.Ingress.Class
	stable, canary := ingresses.at(j.namespace, name), ingresses.at(j.namespace, name+strategy.CanarySuffix)
	desired := func(absent func(place) error) (traffic.Object, error) {
		live, err := a.existing(ctx, stable, absent)
		if err != nil {
			return nil, err
		}
		raw, found, err := a.evaluate(ctx, j, traffic.IngressScript(class),
			traffic.IngressInput(live, class, j.pair, j.asks))
		if err != nil {
			return nil, err
		}
		annotations, err := traffic.IngressOutput(found, live, raw)
		if err != nil {
			return nil, err
		}
		return traffic.CanaryIngress(live, j.pair, annotations, j.version)
	}
	return route{place: canary, users: stable,
		initialise: func() error {
			if err := a.checkIngress(ctx, j, stable); err != nil {
				return err
			}
			return a.checkCreatable(ctx, canary)
		},
		try: func(t trial) error {
			_, err := desired(t.absent)
			return err
		},
		ensure: func() (bool, error) {
			wanted, err := desired(deletedError)
			if err != nil {
				return false, err
			}
			return a.ensureCreated(ctx, canary, j.hand, wanted, traffic.IngressPaths(wanted))
		},
		finalise: func() (bool, error) { return a.removeCreated(ctx, canary, j.hand) }}
}

// checkIngress refuses a user's Ingress that can have no canary.
func (a *Activities) checkIngress(ctx context.Context, j job, stable place) error {
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
	if _, err := a.script(ctx, j.namespace, traffic.IngressScript(j.routing.Ingress.Class)); err != nil {
		return err
	}
	return a.checkNoOtherCanary(ctx, j, live)
}

// canaryCacheTime is how long the list of a namespace's canaries is cached: hundreds of releases may start in it in one
// second.
const canaryCacheTime = time.Second

// checkNoOtherCanary refuses if there is another canary of the same host and path that no release made. A cached canary
// is confirmed by a fresh read, since it may have been deleted.
func (a *Activities) checkNoOtherCanary(ctx context.Context, j job, live traffic.Object) error {
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

// notFoundError is the refusal of an object that does not exist.
func notFoundError(p place) error {
	return failure.New(failure.Refused, "%s does not exist: create it, or name another", p)
}

// preflightHand allows a preflight to read an object regardless of its holder, which findHolder reports.
func preflightHand(holder string) traffic.Claimant {
	return traffic.Claimant{Claim: "preflight", TakeOver: holder}
}

// attemptBorrow decides what borrow would write, without writing it.
func (a *Activities) attemptBorrow(ctx context.Context, p place, t trial, derive derivation) error {
	b, err := a.borrowed(ctx, p, t.absent)
	if err != nil {
		return err
	}
	_, err = b.PlanWrite(t.hand(b.Holder()), derive)
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
