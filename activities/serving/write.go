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
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/release/workload"
)

// writer writes the objects of one party. With dry it uses dry runs.
type writer struct {
	a   *Activities
	req serving.PartyRequest
	dry bool
	// readAt is when the Deployment, which has the fencing token, was last read, and found the Deployment at that time;
	// nil if there was none.
	readAt time.Time
	found  *appsv1.Deployment
}

const retryFormer = 2 * time.Second

// tokenMaxAge is how long a fencing token remains valid after it was read. An attempt that was suspended in between
// reads it again before it writes.
const tokenMaxAge = 2 * time.Second

type kindClient[T object] struct {
	kind  string
	get   func(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	patch func(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string) (T, error)
}

// object is one of the kinds of a serving's objects in a party's namespace.
type object interface {
	metav1.Object
	runtime.Object
}

// writeAll writes all objects of a party: the Deployment last, since its pods need the others.
func (w *writer) writeAll(ctx context.Context, o serving.Objects) (*appsv1.Deployment, error) {
	if time.Since(w.readAt) >= tokenMaxAge { // else this very attempt has just done so
		if err := w.admit(ctx, o); err != nil {
			return nil, err
		}
	}
	core := w.a.client.CoreV1()
	services := core.Services(w.req.Domain)
	for _, s := range o.Services {
		if _, err := ensure(ctx, w, kindClient[*corev1.Service]{"Service", services.Get, services.Patch},
			s); err != nil {
			return nil, err
		}
	}
	if o.ConfigMap != nil {
		maps := core.ConfigMaps(w.req.Domain)
		if _, err := ensure(ctx, w, kindClient[*corev1.ConfigMap]{"ConfigMap", maps.Get, maps.Patch},
			o.ConfigMap); err != nil {
			return nil, err
		}
	}
	deployments := w.a.client.AppsV1().Deployments(w.req.Domain)
	return ensure(ctx, w, kindClient[*appsv1.Deployment]{"Deployment", w.cachedGet(deployments.Get), deployments.Patch},
		o.Deployment)
}

// checkToken reads the Deployment before anything is written: its fencing token is decisive for all objects.
func (w *writer) checkToken(ctx context.Context) error {
	is, err := w.readDeployment(ctx)
	if err != nil || is == nil {
		return err
	}
	return w.mayWrite("Deployment", is)
}

// readDeployment reads the current Deployment before anything is written; nil if there is none.
func (w *writer) readDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	w.readAt = time.Now()
	d, err := w.a.deployment(ctx, name{w.req.Domain, w.req.Deployment})
	w.found = d
	return d, err
}

// cachedGet returns a get that answers with the Deployment that readDeployment has just read.
func (w *writer) cachedGet(get func(context.Context, string, metav1.GetOptions) (*appsv1.Deployment, error)) func(
	context.Context, string, metav1.GetOptions) (*appsv1.Deployment, error) {
	return func(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.Deployment, error) {
		switch {
		case time.Since(w.readAt) >= tokenMaxAge:
			return get(ctx, name, options)
		case w.found != nil:
			return w.found, nil
		case w.dry:
			return nil, apierrors.NewNotFound(appsv1.Resource("deployments"), name)
		default: // it did not exist, but does now: the apply that should have created it conflicted
			return get(ctx, name, options)
		}
	}
}

// recheckToken reads the fencing token again if it was read too long ago.
func (w *writer) recheckToken(ctx context.Context) error {
	switch silent := time.Since(w.readAt); {
	case silent < tokenMaxAge:
		return nil
	case silent > frozenAfter:
		return attempt.StalledError()
	}
	return w.checkToken(ctx)
}

// ensure brings one object to the wanted state, unless it already has it.
func ensure[T object](ctx context.Context, w *writer, c kindClient[T], wanted T) (T, error) {
	var none T
	if !w.dry && w.found == nil {
		// Without a Deployment, the other objects most likely do not exist either: an apply that creates the object
		// conflicts if it exists.
		if made, err := apply(ctx, w, c, wanted, nil); !apierrors.IsConflict(err) {
			return made, err
		}
	}
	is, err := c.get(ctx, wanted.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.dry && c.kind != "Deployment":
		return none, nil // admission rules check pods only
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
	if alreadyWritten(is, wanted) {
		intact, err := w.a.watch.digests.intact(is)
		if err != nil || intact {
			return is, err
		}
	}
	return apply(ctx, w, c, wanted, is)
}

// apply makes the API server bring an object to the wanted state: changes by other clients are reverted, their
// additions stay. An object that does not exist (is is nil) is created by the same write, which owns its fields from
// the start.
func apply[T object](ctx context.Context, w *writer, c kindClient[T], wanted T, is object) (T, error) {
	var none T
	if err := w.recheckToken(ctx); err != nil {
		return none, err
	}
	point := "serving." + c.kind + ".create"
	if is != nil {
		point = "serving." + c.kind + ".update"
		if err := adopt(ctx, w, c, is); err != nil {
			return none, err
		}
	}
	body, err := applyBody(wanted, is, "")
	if err != nil {
		return none, err
	}
	w.hit(point + ".before")
	made, err := c.patch(ctx, wanted.GetName(), types.ApplyPatchType, body, w.applying(is != nil))
	w.hit(point + ".after")
	if err != nil || w.dry {
		return made, err
	}
	return recordDigest(ctx, w, c, wanted, made)
}

// applying returns the options of an apply. With force, Slipway takes back the ownership of changed fields.
func (w *writer) applying(force bool) metav1.PatchOptions {
	return metav1.PatchOptions{FieldManager: serving.FieldManager, Force: &force, DryRun: w.dryRun()}
}

// recordDigest stores the digest of the object as the API server has written it, if that differs from what was sent: an
// admission webhook may have changed it.
func recordDigest[T object](ctx context.Context, w *writer, c kindClient[T], wanted, made T) (T, error) {
	digest, err := w.a.watch.digests.of(made)
	if err != nil || digest == made.GetAnnotations()[serving.AnnotationApplied] {
		return made, err
	}
	body, err := applyBody(wanted, made, digest)
	if err != nil {
		return made, err
	}
	return c.patch(ctx, wanted.GetName(), types.ApplyPatchType, body, w.applying(true))
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

// mayWrite refuses to write an object that belongs to another release or client.
func (w *writer) mayWrite(kind string, is metav1.Object) error {
	claim := is.GetAnnotations()[workload.AnnotationClaimedBy]
	if workload.IsForeign(w.req.Claim, claim) {
		return w.claimed(kind, is, claim)
	}
	switch serving.OwnerOf(is, w.req.ID, w.req.UID) {
	case serving.OwnerForeign:
		return failure.New(failure.Refused, "domain %s %s %s already exist, please ensure that the %s name can't be "+
			"duplicated: it does not belong to serving %s; delete or rename it, then send the serving again",
			w.req.Domain, strings.ToLower(kind), is.GetName(), strings.ToLower(kind), w.req.ID)
	case serving.OwnerFormer:
		if engine := is.GetAnnotations()[serving.AnnotationEngine]; engine != "" && engine != w.a.options.Engine {
			return failure.New(failure.Refused, "%s %s/%s belongs to a serving of the same name of another engine "+
				"(Temporal namespace %s): delete that "+
				"serving there, or rename this one", kind, w.req.Domain, is.GetName(), engine)
		}
		return &failure.Error{Kind: failure.NotReady, RetryAfter: retryFormer, Message: kind + " " + w.req.Domain +
			"/" + is.GetName() + " belongs to a deleted serving of the same name (uid " +
			is.GetLabels()[kuscia.LabelDeploymentUID] +
			"): waiting for the deletion of that serving to remove it; delete it yourself if no deletion is " +
			"in progress"}
	}
	if !serving.MayClaim(claim, w.req) {
		return w.claimed(kind, is, claim)
	}
	if serving.TokenOf(is).After(w.req.Token()) {
		return failure.New(failure.ClaimLost, "%s %s/%s was written by a newer operation, or by a later step of this "+
			"one: this step is obsolete", kind, w.req.Domain, is.GetName())
	}
	return nil
}

// claimed returns the refusal to write an object that another release has claimed.
func (w *writer) claimed(kind string, is metav1.Object, claim string) error {
	e := failure.New(failure.Claimed, "%s %s/%s is being released by %s: wait until it has ended, or stop it", kind,
		w.req.Domain, is.GetName(), workload.HolderName(w.req.Claim, claim))
	e.Holder = claim
	return e
}

// alreadyWritten reports whether an object was last written with the wanted content by this very step. If only the
// fencing token differs, the object is written anyway, so that a suspended attempt with an earlier token is refused.
func alreadyWritten(is, wanted metav1.Object) bool {
	keys := []string{serving.AnnotationContent, serving.AnnotationVersion, serving.AnnotationToken,
		workload.AnnotationClaimedBy}
	return !slices.ContainsFunc(keys, func(key string) bool {
		return is.GetAnnotations()[key] != wanted.GetAnnotations()[key]
	})
}

// admit refuses, before anything is written, what the party does not accept, and objects that the operation may not
// write.
func (w *writer) admit(ctx context.Context, o serving.Objects) error {
	is, err := w.readDeployment(ctx)
	if err != nil {
		return err
	}
	if err := w.invited(ctx, is); err != nil {
		return err
	}
	if err := w.a.options.Policy.Check(o.Deployment); err != nil {
		return err
	}
	if err := w.checkReleasePolicy(o.Deployment, is); err != nil || is == nil {
		return err
	}
	return w.mayWrite("Deployment", is)
}

// checkReleasePolicy refuses pods that the party's policy for all releases does not allow. A rollback to the version
// that the operation began from is not judged.
func (w *writer) checkReleasePolicy(wanted, is *appsv1.Deployment) error {
	if w.req.Source.Previous {
		return nil
	}
	judged := podpolicy.Template{Object: "Deployment " + wanted.Namespace + "/" + wanted.Name,
		New: &wanted.Spec.Template, Remedy: "Change the AppImage"}
	if is != nil {
		judged.Live = &is.Spec.Template
	}
	return w.a.options.ReleasePolicy.Check(judged)
}

// invited refuses a serving that the namespace does not invite. is is the current Deployment.
func (w *writer) invited(ctx context.Context, is *appsv1.Deployment) error {
	if w.a.options.AnyNamespace || !admission.NeedsInvitation(is, w.req) {
		return nil
	}
	namespace, err := recent.Get(ctx, &w.a.namespaces, w.req.Domain, attempt.CacheAge(ctx),
		func(ctx context.Context) (*corev1.Namespace, error) {
			return w.a.client.CoreV1().Namespaces().Get(ctx, w.req.Domain, metav1.GetOptions{})
		})
	if err != nil {
		return err
	}
	return admission.CheckInvitation(namespace)
}
