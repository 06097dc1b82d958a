package declared

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// Refusal lists every reason why the parties cannot run a serving as it was requested.
type Refusal strictyaml.Errors

// Error returns the first reason.
func (r Refusal) Error() string { return r[0].Reason }

// Effective returns a copy of the serving as shown to clients: a request changes that version, so that it does not
// implicitly retry a rolled back update.
func Effective(stored *kuscia.KusciaDeployment) (*kuscia.KusciaDeployment, error) {
	shown := stored.DeepCopy()
	if !serving.RolledBack(stored) {
		return shown, nil
	}
	served, err := serving.Unpack(stored.Status.Served.Version)
	shown.Spec = served.Spec
	return shown, err
}

// Create creates a serving with this spec; an existing one of its ID is a Conflict.
func (w Writer) Create(ctx context.Context, id, affinityMode string, spec kuscia.KusciaDeploymentSpec,
	images map[string]kuscia.AppImageSpec) error {
	kd := &kuscia.KusciaDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: kuscia.Namespace,
			Labels: map[string]string{kuscia.LabelAppType: kuscia.AppTypeServing},
			// Otherwise the controller would add it: one more write and reconciliation per creation.
			Finalizers: []string{kuscia.Finalizer}},
		Spec: spec,
	}
	setAffinity(kd, affinityMode)
	if err := w.check(ctx, kd, nil, images); err != nil {
		return err
	}
	return w.Home.CreateServing(ctx, kd)
}

func setAffinity(kd *kuscia.KusciaDeployment, mode string) {
	if mode != "" {
		metav1.SetMetaDataAnnotation(&kd.ObjectMeta, kuscia.AnnotationAffinityMode, mode)
	}
}

// Change writes the requested serving, a changed copy of the Effective one, unless it equals the stored one. A Conflict
// means that the serving was changed after it was read. Afterwards changed holds the stored state.
func (w Writer) Change(ctx context.Context, stored, changed *kuscia.KusciaDeployment,
	images map[string]kuscia.AppImageSpec) (written bool, err error) {
	if sameSpec(stored, changed) {
		// The same spec makes no new generation, for which an operation starts; another revision does.
		changed.Spec.Revision, err = serving.Revision(stored, changed, images)
		if err != nil || sameSpec(stored, changed) {
			return false, err
		}
	}
	if err := w.check(ctx, changed, stored.Spec.Parties, images); err != nil {
		return false, err
	}
	return true, w.Home.UpdateServing(ctx, changed)
}

func sameSpec(a, b *kuscia.KusciaDeployment) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }

// check returns a Refusal if a domain other than those of former has no party, or if the version cannot be rendered for
// every party. A party that is unreachable is accepted: it takes part when it is reachable again.
func (w Writer) check(ctx context.Context, kd *kuscia.KusciaDeployment, former []kuscia.Party,
	images map[string]kuscia.AppImageSpec) error {
	domainOf := func(p kuscia.Party) string { return p.DomainID }
	domains, known := distinct(kd.Spec.Parties, domainOf), distinct(former, domainOf)
	found, unusable := make([]bool, len(domains)), make([]string, len(domains))
	err := ForEach(len(domains), func(i int) (err error) {
		if found[i] = slices.Contains(known, domains[i]); !found[i] && catalog.ValidParty(domains[i]) == nil {
			_, found[i], err = w.Home.Queue(ctx, domains[i])
		}
		if failure.Is(err, failure.Refused) {
			unusable[i], err = err.Error(), nil
		}
		return err
	})
	if err != nil {
		return err
	}
	var refusal Refusal
	for i, domain := range domains {
		if !found[i] || unusable[i] != "" {
			party := slices.IndexFunc(kd.Spec.Parties, func(p kuscia.Party) bool { return p.DomainID == domain })
			refusal = append(refusal, strictyaml.FieldError{Field: fmt.Sprintf("parties[%d].domainID", party),
				Reason: cmp.Or(unusable[i], fmt.Sprintf("domain %s is not known: create a Party object or a namespace "+
					"of that name in the home cluster", domain))})
		}
	}
	for _, p := range serving.Snapshot(kd, images).Check() {
		reason := strictyaml.FieldError{Reason: p.Message}
		if p.Party != serving.WholeServing {
			reason.Field = fmt.Sprintf("parties[%d]", p.Party)
		}
		refusal = append(refusal, reason)
	}
	if len(refusal) > 0 {
		return refusal
	}
	return nil
}

// ServingRequest is the complete desired state of a serving.
type ServingRequest struct {
	ID   string
	Spec kuscia.KusciaDeploymentSpec
	// AffinityMode is the new affinity mode; "" keeps the current one.
	AffinityMode string
	// Generation is the generation that the request is based on, 0 for a serving that must not exist; nil: any.
	Generation *int64
}

// PutServing creates the serving, or changes it to what is requested. The revision of its spec is the engine's.
func (w Writer) PutServing(ctx context.Context, r ServingRequest) (result schema.PutDeclaredResult, err error) {
	r.Spec.Revision = ""
	err = failure.RetryOnConflict("serving "+r.ID, func() error {
		stored, err := w.Home.GetServing(ctx, r.ID)
		switch {
		case failure.Is(err, failure.NotFound):
			stored = &kuscia.KusciaDeployment{}
		case err != nil:
			return err
		case stored.DeletionTimestamp != nil:
			return problem.Conflict.Because("serving %s is being deleted: its ID can be used again when its parties "+
				"are cleaned up", r.ID)
		}
		if err := checkBase("serving "+r.ID, ": change it with PUT /api/v1/servings/"+r.ID+", or choose another ID",
			r.Generation, stored.Generation); err != nil {
			return err
		}
		images, err := w.Images(ctx, r.Spec.Parties)
		switch {
		case err != nil:
			return err
		case stored.Generation == 0:
			result = created(r.ID)
			return w.Create(ctx, r.ID, r.AffinityMode, r.Spec, images)
		}
		result, err = w.replace(ctx, stored, r, images)
		return err
	})
	return result, err
}

func (w Writer) replace(ctx context.Context, stored *kuscia.KusciaDeployment, r ServingRequest,
	images map[string]kuscia.AppImageSpec) (result schema.PutDeclaredResult, err error) {
	changed, err := Effective(stored)
	if err != nil {
		return result, err
	}
	r.Spec.Revision = changed.Spec.Revision
	changed.Spec = r.Spec
	setAffinity(changed, r.AffinityMode)
	served, err := serving.ServedVersion(stored)
	if err != nil {
		return result, err
	}
	if wrong := serving.ChangedParties(changed, served); wrong != "" {
		return result, Refusal{{Field: "parties", Reason: wrong}}
	}
	written, err := w.Change(ctx, stored, changed, images)
	return schema.PutDeclaredResult{Name: r.ID, Generation: changed.Generation, Changed: written}, err
}
