package serving

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

const fieldManager = "slipway-serving"

// writer brings objects of one party about. dry makes it try without a write.
type writer struct {
	a   *Activities
	req serving.PartyRequest
	dry bool
	// looked is when the Deployment was last asked whose turn it is.
	looked time.Time
}

// turnLasts is how long the answer to that holds. An attempt that is frozen in between asks again before it writes: its turn may be over.
const turnLasts = 2 * time.Second

// kindClient is what a writer needs of a kind.
type kindClient[T metav1.Object] struct {
	kind   string
	get    func(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	create func(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	update func(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	// take takes over what the object is to be into what it is.
	take func(is, wanted T)
}

// all writes everything of a party: the Deployment last, since its pods need the rest.
func (w *writer) all(ctx context.Context, o serving.Objects) (*appsv1.Deployment, error) {
	if err := w.mayBegin(ctx, o.Deployment.Name); err != nil {
		return nil, err
	}
	core := w.a.client.CoreV1()
	services := core.Services(w.req.Domain)
	for _, s := range o.Services {
		_, err := put(ctx, w, kindClient[*corev1.Service]{"Service", services.Get, services.Create, services.Update,
			func(is, wanted *corev1.Service) { takeService(is, wanted) }}, s)
		if err != nil {
			return nil, err
		}
	}
	if o.ConfigMap != nil {
		maps := core.ConfigMaps(w.req.Domain)
		_, err := put(ctx, w, kindClient[*corev1.ConfigMap]{"ConfigMap", maps.Get, maps.Create, maps.Update,
			func(is, wanted *corev1.ConfigMap) { is.Data, is.BinaryData = wanted.Data, nil }}, o.ConfigMap)
		if err != nil {
			return nil, err
		}
	}
	deployments := w.a.client.AppsV1().Deployments(w.req.Domain)
	return put(ctx, w, kindClient[*appsv1.Deployment]{"Deployment", deployments.Get, deployments.Create, deployments.Update,
		func(is, wanted *appsv1.Deployment) { is.Spec = wanted.Spec }}, o.Deployment)
}

// mayBegin looks at the Deployment before anything is written: it alone says whose turn it is.
func (w *writer) mayBegin(ctx context.Context, name string) error {
	w.looked = time.Now()
	call, cancel := w.a.call(ctx)
	defer cancel()
	is, err := w.a.client.AppsV1().Deployments(w.req.Domain).Get(call, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return w.mayWrite("Deployment", is)
}

// mayGoOn looks at it again when the last look is long ago.
func (w *writer) mayGoOn(ctx context.Context) error {
	switch silent := time.Since(w.looked); {
	case silent < turnLasts:
		return nil
	case silent > frozenFor:
		return errFrozen()
	}
	return w.mayBegin(ctx, w.req.Deployment)
}

// takeService keeps what the API server has given the Service.
func takeService(is, wanted *corev1.Service) {
	given := is.Spec
	is.Spec = *wanted.Spec.DeepCopy()
	is.Spec.ClusterIP, is.Spec.ClusterIPs, is.Spec.IPFamilies, is.Spec.IPFamilyPolicy = given.ClusterIP, given.ClusterIPs, given.IPFamilies, given.IPFamilyPolicy
}

// put makes one object what it is to be, unless it is that already.
func put[T metav1.Object](ctx context.Context, w *writer, c kindClient[T], wanted T) (T, error) {
	var none T
	call, cancel := w.a.call(ctx)
	defer cancel()
	is, err := c.get(call, wanted.GetName(), metav1.GetOptions{})
	point := "serving." + c.kind
	switch {
	case apierrors.IsNotFound(err) && w.dry && c.kind != "Deployment":
		return none, nil // what admission rules look at is the pods
	case apierrors.IsNotFound(err):
		if err := w.mayGoOn(ctx); err != nil {
			return none, err
		}
		options := metav1.CreateOptions{FieldManager: fieldManager, DryRun: w.dryRun()}
		w.hit(point + ".create.before")
		made, err := c.create(call, wanted, options)
		w.hit(point + ".create.after")
		return made, err
	case err != nil:
		return none, err
	}
	if err := w.mayWrite(c.kind, is); err != nil {
		return none, err
	}
	if same(is, wanted) || w.dry && c.kind != "Deployment" {
		return is, nil
	}
	if err := w.mayGoOn(ctx); err != nil {
		return none, err
	}
	change(is, wanted)
	c.take(is, wanted)
	options := metav1.UpdateOptions{FieldManager: fieldManager, DryRun: w.dryRun()}
	w.hit(point + ".update.before")
	made, err := c.update(call, is, options)
	w.hit(point + ".update.after")
	return made, err
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
	switch serving.OwnerOf(is, w.req.ID, w.req.UID) {
	case serving.OwnerForeign:
		return failure.New(failure.Refused, "domain %s %s %s already exist, please ensure that the %s name can't be duplicated: it is not of serving %s; delete or rename it, then send the serving again",
			w.req.Domain, strings.ToLower(kind), is.GetName(), strings.ToLower(kind), w.req.ID)
	case serving.OwnerFormer:
		return &failure.Error{Kind: failure.NotReady, RetryAfter: retryFormer,
			Message: kind + " " + w.req.Domain + "/" + is.GetName() + " is of a former serving of that name (uid " + is.GetLabels()[kuscia.LabelDeploymentUID] +
				"): it is waited for until that serving's deletion has removed it; delete it yourself if no deletion is under way"}
	}
	claim := is.GetAnnotations()[workloadops.AnnotationClaimedBy]
	if !serving.MayTake(claim, w.req.ID, w.req.Generation) {
		e := failure.New(failure.Claimed, "%s %s/%s is being released by %s: wait until that is over, or stop it", kind, w.req.Domain, is.GetName(),
			workloadops.ParseHolder(claim).WorkflowID)
		e.Holder = claim
		return e
	}
	if serving.TurnOf(is).After(w.req.Turn()) {
		return failure.New(failure.ClaimLost, "%s %s/%s was written by a newer operation, or by a later step of this one: this step has nothing to do there any more", kind,
			w.req.Domain, is.GetName())
	}
	return nil
}

// same says whether an object was told to be this before, in this very turn: even where nothing else is new its turn is written, so that what was frozen with
// an earlier one in its hands is refused.
func same(is, wanted metav1.Object) bool {
	keys := []string{serving.AnnotationContent, serving.AnnotationVersion, serving.AnnotationTurn, workloadops.AnnotationClaimedBy}
	return !slices.ContainsFunc(keys, func(key string) bool { return is.GetAnnotations()[key] != wanted.GetAnnotations()[key] })
}

// change takes labels and annotations over; what others have written there stays.
func change(is, wanted metav1.Object) {
	labels, annotations := maps.Clone(is.GetLabels()), maps.Clone(is.GetAnnotations())
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, wanted.GetLabels())
	maps.Copy(annotations, wanted.GetAnnotations())
	is.SetLabels(labels)
	is.SetAnnotations(annotations)
}
