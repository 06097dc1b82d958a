package traffic

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/store/recent"
)

// job is one routing of a request, and what is asked of it.
type job struct {
	namespace string
	routing   strategy.Routing
	pair      traffic.ServicePair
	asks      strategy.Traffic
	hand      traffic.Hand
	version   traffic.Version
}

// stable and canary are the job's two Services.
func (j job) stable() place { return services.at(j.namespace, j.pair.Stable) }

func (j job) canary() place { return services.at(j.namespace, j.pair.Canary) }

// provider is what routes requests to Services. ensure and finalise read the world, write what differs, and say whether they wrote
// anything; a change is verified by another round that finds nothing left to write.
type provider interface {
	// initialise checks without a write that the routing objects are there and lead to the Service; it fails with failure.Refused.
	initialise(ctx context.Context, a *Activities, j job) error
	// try finds out without a write whether the routes can do what the job asks; it fails with failure.Refused.
	try(ctx context.Context, a *Activities, j job) error
	// ensure has the routes do what the job asks.
	ensure(ctx context.Context, a *Activities, j job) (bool, error)
	// finalise makes the routing objects what they were.
	finalise(ctx context.Context, a *Activities, j job) (bool, error)
	// places are the objects that the provider reads and writes.
	places(ctx context.Context, a *Activities, j job) ([]place, error)
}

func providerOf(r strategy.Routing) provider {
	if r.Ingress != nil {
		return ingressProvider{}
	}
	return borrowingProvider{}
}

// jobs are the routings of a request.
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
			hand: traffic.Hand{Claim: req.Claim, TakeOver: req.TakeOver, Overwrite: req.Overwrite, Tells: req.Declared},
			version: traffic.Version{
				Workload: req.Workload.WorkloadRef.Name, Label: rollout.RevisionLabel(req.Workload.WorkloadRef.Kind), Hash: req.CanaryHash,
				Labels: req.CanaryLabels, Claim: req.Claim,
			},
		})
	}
	return out
}

// existing reads an object; absent is the failure when it is not there.
func (a *Activities) existing(ctx context.Context, p place, absent func(place) error) (traffic.Object, error) {
	live, err := a.get(ctx, p)
	if err == nil && live == nil {
		err = absent(p)
	}
	return live, err
}

// borrowed reads an object that marks stay on.
func (a *Activities) borrowed(ctx context.Context, p place, absent func(place) error) (traffic.Borrowed, error) {
	live, err := a.existing(ctx, p, absent)
	if err != nil {
		return traffic.Borrowed{}, err
	}
	return traffic.Look(p.String(), live, p.borrows)
}

// derivation is what becomes of the original of an object, and at which pointers it differs.
type derivation func(original traffic.Object) (traffic.Object, []string, error)

// borrow has an object be what derive makes of its original.
func (a *Activities) borrow(ctx context.Context, p place, h traffic.Hand, derive derivation) (bool, error) {
	b, err := a.borrowed(ctx, p, vanished)
	if err != nil {
		return false, err
	}
	w, err := b.Want(h, derive)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, b.Live(), w)
}

// giveBack makes a borrowed object what it was; one that was deleted needs nothing.
func (a *Activities) giveBack(ctx context.Context, p place, h traffic.Hand) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	b, err := traffic.Look(p.String(), live, p.borrows)
	if err != nil {
		return false, err
	}
	w, err := b.Return(h)
	if err != nil || w == nil {
		return false, err
	}
	return true, a.sendBack(ctx, p, live, w)
}

// keep has an object that we make be as desired.
func (a *Activities) keep(ctx context.Context, p place, h traffic.Hand, desired traffic.Object, paths []string) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil {
		return false, err
	}
	if live == nil {
		return true, a.create(ctx, p, desired, paths)
	}
	w, err := traffic.LookCreated(p.String(), live).Want(h, desired, paths)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, live, w)
}

// clear deletes an object that we made; one that we did not make is left alone.
func (a *Activities) clear(ctx context.Context, p place, h traffic.Hand) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	c := traffic.LookCreated(p.String(), live)
	if c.Foreign() {
		return false, nil
	}
	if err := c.Mine(h); err != nil {
		return false, err
	}
	return true, a.remove(ctx, p, live)
}

// ingressProvider routes by <ingress>-canary beside the user's Ingress, which is not touched.
type ingressProvider struct{}

func (ingressProvider) place(j job) (stable, canary place) {
	name := j.routing.Ingress.Name
	return ingresses.at(j.namespace, name), ingresses.at(j.namespace, name+strategy.CanarySuffix)
}

func (p ingressProvider) places(_ context.Context, _ *Activities, j job) ([]place, error) {
	stable, canary := p.place(j)
	return []place{stable, canary}, nil
}

// desired is the canary Ingress as it should be.
func (p ingressProvider) desired(ctx context.Context, a *Activities, j job, live traffic.Object) (traffic.Object, error) {
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
	live, err := a.existing(ctx, stable, vanished)
	if err != nil {
		return false, err
	}
	desired, err := p.desired(ctx, a, j, live)
	if err != nil {
		return false, err
	}
	return a.keep(ctx, canary, j.hand, desired, traffic.IngressPaths(desired))
}

func (p ingressProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	_, canary := p.place(j)
	return a.clear(ctx, canary, j.hand)
}

func (p ingressProvider) initialise(ctx context.Context, a *Activities, j job) error {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, missing)
	if err != nil {
		return err
	}
	if _, is := traffic.CanaryAnnotations(live); is {
		return failure.New(failure.Refused, "%s is itself a canary by its annotations: name the Ingress that it stands beside", stable)
	}
	if _, err := traffic.CanaryIngress(live, j.pair, nil, j.version); err != nil {
		return err
	}
	if _, _, err := a.source(ctx, j.namespace, traffic.IngressScript(j.routing.Ingress.Class)); err != nil {
		return err
	}
	if err := p.alone(ctx, a, j, live); err != nil {
		return err
	}
	return a.ours(ctx, canary)
}

// canariesLast is how long counts which canaries a namespace was found to have: hundreds of releases may begin in it in a second.
const canariesLast = time.Second

// alone refuses where somebody else has made a canary of the same host and path. One that was there a moment ago may have been deleted since.
func (p ingressProvider) alone(ctx context.Context, a *Activities, j job, live traffic.Object) error {
	read := func(ctx context.Context) ([]unstructured.Unstructured, error) {
		return a.othersCanaries(ctx, j.namespace)
	}
	canaries, err := recent.Get(ctx, &a.canaries, j.namespace, canariesLast, read)
	if err != nil || second(j, live, canaries) == nil {
		return err
	}
	if canaries, err = read(ctx); err != nil {
		return err
	}
	return second(j, live, canaries)
}

// second is the refusal of a second canary of one host and path, nil when there is none.
func second(j job, live traffic.Object, canaries []unstructured.Unstructured) error {
	for i := range canaries {
		if place := traffic.SecondCanary(live, canaries[i].Object, j.pair); place != "" {
			return failure.New(failure.Refused, "%s is a canary of %s already, which somebody else has made: a controller follows only one canary of a "+
				"host and path; delete it first", ingresses.at(j.namespace, canaries[i].GetName()), place)
		}
	}
	return nil
}

// othersCanaries are the canary Ingresses of a namespace that no release has made: one that a release has made belongs to a workload with an Ingress of its
// own.
func (a *Activities) othersCanaries(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	list, err := a.cluster.List(ctx, ingresses.gvr, namespace, "")
	return slices.DeleteFunc(list, func(o unstructured.Unstructured) bool {
		_, is := traffic.CanaryAnnotations(o.Object)
		return !is || !traffic.LookCreated(ingresses.at(namespace, o.GetName()).String(), o.Object).Foreign()
	}), err
}

func (p ingressProvider) try(ctx context.Context, a *Activities, j job) error {
	stable, _ := p.place(j)
	live, err := a.existing(ctx, stable, missing)
	if err != nil {
		return err
	}
	_, err = p.desired(ctx, a, j, live)
	return err
}

// borrowingProvider changes objects of the user's: the rules of an HTTPRoute, or custom objects as their scripts say.
type borrowingProvider struct{}

// route is one object that requests go through.
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
			k = httpRoutes // what the cluster doesn't have any more needs nothing
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
		k, err := a.kinds.of(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		at, script := k.at(j.namespace, ref.Name), traffic.CustomScript(ref)
		out = append(out, route{place: at, initialise: func() error {
			if _, err := a.existing(ctx, at, missing); err != nil {
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

// finalise goes through the objects in the opposite order: who refers to another is given back first.
func (p borrowingProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	j.routing.Custom = slices.Clone(j.routing.Custom)
	slices.Reverse(j.routing.Custom)
	return p.each(ctx, a, j, func(r route) (bool, error) { return a.giveBack(ctx, r.place, j.hand) })
}

// each does something with one object after the other, and says whether it wrote any.
func (p borrowingProvider) each(ctx context.Context, a *Activities, j job, do func(route) (bool, error)) (wrote bool, err error) {
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

// missing is the refusal of an object that should be there.
func missing(p place) error {
	return failure.New(failure.Refused, "%s does not exist: create it, or name another", p)
}

// looking is the hand of a preflight: it reads what is there, whoever holds it. Who does is told apart from this.
func looking(holder string) traffic.Hand { return traffic.Hand{Claim: "preflight", TakeOver: holder} }

// attemptBorrow decides what borrow would write, without writing it.
func (a *Activities) attemptBorrow(ctx context.Context, p place, derive derivation) error {
	b, err := a.borrowed(ctx, p, missing)
	if err != nil {
		return err
	}
	_, err = b.Want(looking(b.Holder()), derive)
	return err
}

// ours refuses an object under the name of one that a release makes, when no release has made it.
func (a *Activities) ours(ctx context.Context, p place) error {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return err
	}
	return traffic.LookCreated(p.String(), live).Mine(looking(traffic.HolderOf(live)))
}
