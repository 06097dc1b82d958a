package serving

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// writer brings objects of one party about. dry makes it try without a write.
type writer struct {
	a   *Activities
	req serving.PartyRequest
	dry bool
	// looked is when the Deployment's fencing token was last read, and found the Deployment as it was then; nil: there was none.
	looked time.Time
	found  *appsv1.Deployment
}

const retryFormer = 2 * time.Second

// tokenLasts is how long a fencing token that was read is relied on. An attempt that is frozen in between reads it again before it writes.
const tokenLasts = 2 * time.Second

type kindClient[T object] struct {
	kind  string
	get   func(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	patch func(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)
}

// object is one of the kinds that a serving has in a party's namespace.
type object interface {
	metav1.Object
	runtime.Object
}

// all writes everything of a party: the Deployment last, since its pods need the rest.
func (w *writer) all(ctx context.Context, o serving.Objects) (*appsv1.Deployment, error) {
	if err := w.admitted(ctx, o); err != nil {
		return nil, err
	}
	core := w.a.client.CoreV1()
	services := core.Services(w.req.Domain)
	for _, s := range o.Services {
		if _, err := put(ctx, w, kindClient[*corev1.Service]{"Service", services.Get, services.Patch}, s); err != nil {
			return nil, err
		}
	}
	if o.ConfigMap != nil {
		maps := core.ConfigMaps(w.req.Domain)
		if _, err := put(ctx, w, kindClient[*corev1.ConfigMap]{"ConfigMap", maps.Get, maps.Patch}, o.ConfigMap); err != nil {
			return nil, err
		}
	}
	deployments := w.a.client.AppsV1().Deployments(w.req.Domain)
	return put(ctx, w, kindClient[*appsv1.Deployment]{"Deployment", w.lately(deployments.Get), deployments.Patch}, o.Deployment)
}

// mayBegin looks at the Deployment before anything is written: its fencing token decides for all objects.
func (w *writer) mayBegin(ctx context.Context) error {
	is, err := w.standing(ctx)
	if err != nil || is == nil {
		return err
	}
	return w.mayWrite("Deployment", is)
}

// standing is the Deployment as it stands before anything is written; nil when there is none.
func (w *writer) standing(ctx context.Context) (*appsv1.Deployment, error) {
	w.looked = time.Now()
	d, err := w.a.deployment(ctx, name{w.req.Domain, w.req.Deployment})
	w.found = d
	return d, err
}

// lately is get, for the Deployment that standing has just read.
func (w *writer) lately(get func(context.Context, string, metav1.GetOptions) (*appsv1.Deployment, error)) func(context.Context, string,
	metav1.GetOptions) (*appsv1.Deployment, error) {
	return func(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.Deployment, error) {
		switch {
		case time.Since(w.looked) >= tokenLasts:
			return get(ctx, name, options)
		case w.found != nil:
			return w.found, nil
		case w.dry:
			return nil, apierrors.NewNotFound(appsv1.Resource("deployments"), name)
		default: // it was not there, and has come since: so the apply has said that was to make it
			return get(ctx, name, options)
		}
	}
}

// mayGoOn looks at it again when the last look is long ago.
func (w *writer) mayGoOn(ctx context.Context) error {
	switch silent := time.Since(w.looked); {
	case silent < tokenLasts:
		return nil
	case silent > frozenFor:
		return attempt.Frozen()
	}
	return w.mayBegin(ctx)
}

// put makes one object what it is to be, unless it is that already.
func put[T object](ctx context.Context, w *writer, c kindClient[T], wanted T) (T, error) {
	var none T
	if !w.dry && w.found == nil {
		// Where there is no Deployment the rest is most likely not there either: an apply that makes it is a conflict where it is.
		if made, err := apply(ctx, w, c, wanted, nil); !apierrors.IsConflict(err) {
			return made, err
		}
	}
	call, cancel := w.a.call(ctx)
	defer cancel()
	is, err := c.get(call, wanted.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.dry && c.kind != "Deployment":
		return none, nil // what admission rules look at is the pods
	case apierrors.IsNotFound(err):
		return apply(ctx, w, c, wanted, nil)
	case err != nil:
		return none, err
	}
	if err := w.mayWrite(c.kind, is); err != nil {
		return none, err
	}
	if w.dry && c.kind != "Deployment" {
		return is, nil
	}
	if same(is, wanted) {
		intact, err := w.a.watch.digests.intact(is)
		if err != nil || intact {
			return is, err
		}
	}
	return apply(ctx, w, c, wanted, is)
}

// apply has the API server make an object what it is to be: what others have changed of it is taken back, what they have added stays. One
// that is not there (is is nil) is made by the same write, which owns its fields from the start.
func apply[T object](ctx context.Context, w *writer, c kindClient[T], wanted T, is object) (T, error) {
	var none T
	if err := w.mayGoOn(ctx); err != nil {
		return none, err
	}
	call, cancel := w.a.call(ctx)
	defer cancel()
	point := "serving." + c.kind + ".create"
	if is != nil {
		point = "serving." + c.kind + ".update"
		if err := adopt(call, w, c, is); err != nil {
			return none, err
		}
	}
	body, err := applyBody(wanted, is, "")
	if err != nil {
		return none, err
	}
	w.hit(point + ".before")
	made, err := c.patch(call, wanted.GetName(), types.ApplyPatchType, body, w.applying(is != nil))
	w.hit(point + ".after")
	if err != nil || w.dry {
		return made, err
	}
	return seal(ctx, w, c, wanted, made)
}

// applying are the options of an apply. With force, what others have changed is Slipway's again.
func (w *writer) applying(force bool) metav1.PatchOptions {
	return metav1.PatchOptions{FieldManager: serving.FieldManager, Force: &force, DryRun: w.dryRun()}
}

// seal notes the digest of what the API server has made of an object, where that is not what was sent: an admission webhook may have
// changed it.
func seal[T object](ctx context.Context, w *writer, c kindClient[T], wanted, made T) (T, error) {
	digest, err := w.a.watch.digests.of(made)
	if err != nil || digest == made.GetAnnotations()[serving.AnnotationApplied] {
		return made, err
	}
	body, err := applyBody(wanted, made, digest)
	if err != nil {
		return made, err
	}
	call, cancel := w.a.call(ctx)
	defer cancel()
	return c.patch(call, wanted.GetName(), types.ApplyPatchType, body, w.applying(true))
}

func (w *writer) dryRun() []string {
	if w.dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (w *writer) hit(point string) {
	if !w.dry {
		failpoint.Hit(point)
	}
}

// mayWrite refuses to touch what is somebody else's.
func (w *writer) mayWrite(kind string, is metav1.Object) error {
	claim := is.GetAnnotations()[workloadops.AnnotationClaimedBy]
	if workloadops.IsForeign(w.req.Claim, claim) {
		return w.claimed(kind, is, claim)
	}
	switch serving.OwnerOf(is, w.req.ID, w.req.UID) {
	case serving.OwnerForeign:
		return failure.New(failure.Refused,
			"domain %s %s %s already exist, please ensure that the %s name can't be duplicated: it is not of serving %s; "+
				"delete or rename it, then send the serving again",
			w.req.Domain, strings.ToLower(kind), is.GetName(), strings.ToLower(kind), w.req.ID)
	case serving.OwnerFormer:
		if engine := is.GetAnnotations()[serving.AnnotationEngine]; engine != "" && engine != w.a.options.Engine {
			return failure.New(failure.Refused, "%s %s/%s is of a serving of that name of another engine (Temporal namespace %s): delete that serving "+
				"there, or give this one another name", kind, w.req.Domain, is.GetName(), engine)
		}
		return &failure.Error{Kind: failure.NotReady, RetryAfter: retryFormer,
			Message: kind + " " + w.req.Domain + "/" + is.GetName() + " is of a former serving of that name (uid " +
				is.GetLabels()[kuscia.LabelDeploymentUID] +
				"): it is waited for until that serving's deletion has removed it; delete it yourself if no deletion is under way"}
	}
	if !serving.MayTake(claim, w.req) {
		return w.claimed(kind, is, claim)
	}
	if serving.TokenOf(is).After(w.req.Token()) {
		return failure.New(failure.ClaimLost,
			"%s %s/%s was written by a newer operation, or by a later step of this one: this step has nothing to do there any more", kind,
			w.req.Domain, is.GetName())
	}
	return nil
}

// claimed is the refusal of an object that another release holds.
func (w *writer) claimed(kind string, is metav1.Object, claim string) error {
	e := failure.New(failure.Claimed, "%s %s/%s is being released by %s: wait until that is over, or stop it", kind,
		w.req.Domain, is.GetName(), workloadops.Told(w.req.Claim, claim))
	e.Holder = claim
	return e
}

// same says whether an object was written as this before, by this very step. Where nothing but the fencing token is new the token is
// written, so that an attempt that was frozen with an earlier one is refused.
func same(is, wanted metav1.Object) bool {
	keys := []string{serving.AnnotationContent, serving.AnnotationVersion, serving.AnnotationToken, workloadops.AnnotationClaimedBy}
	return !slices.ContainsFunc(keys, func(key string) bool { return is.GetAnnotations()[key] != wanted.GetAnnotations()[key] })
}
