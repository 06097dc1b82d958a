package rollout

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// report finds out whether a change of the workload's pod template moved pods although the Rollout was there, and shows
// the workload's state. Such a change gets a record, a condition, an event and a count. The watch caches no spec: the
// workload is read first.
func (c *Controller) report(ctx context.Context, s kruise.Snapshot) error {
	r := s.Object
	found, err := c.objects.Resource(s.Workload.Ref.Lookup().Resource).Namespace(r.Namespace).Get(ctx, s.Workload.Name,
		metav1.GetOptions{})
	if err != nil {
		return ignoreStale(err)
	}
	w := kruise.ReadWorkload(found)
	if w.Held != nil || w.Next != "" || w.Claim != "" || w.Saved != nil {
		return nil // changed since: the watch delivers it
	}
	text := ""
	if change := kruise.FindNotHeld(r, found); change != nil {
		why, err := c.whyNotHeld(ctx, r, found)
		if err != nil {
			return err
		}
		text = change.Text(w, why)
		c.record(ctx, r, w, text)
	}
	next := s.Reported(w, text)
	if next.Kind != kruise.DoWriteStatus {
		return nil
	}
	failpoint.Hit("controller.report.before")
	if err := c.show(ctx, r, *next.Status); err != nil || text == "" {
		return err
	}
	failpoint.Hit("controller.report.after")
	c.options.Log.Warn("a change of a pod template was not held", "rollout", r.Namespace+"/"+r.Name, "problem", text)
	c.warnings.notHeld(referenceTo(r), text)
	if c.options.CountNotHeld != nil {
		c.options.CountNotHeld()
	}
	return nil
}

// whyNotHeld says why the API server did not hold a change of the workload's pod template, as far as that can be seen
// afterwards.
func (c *Controller) whyNotHeld(ctx context.Context, r *v1beta1.Rollout, w *unstructured.Unstructured) (string, error) {
	if by, is := w.GetAnnotations()[rollout.AnnotationRepair]; is {
		return "it is under repair by " + by, nil
	}
	labels, err := c.home.NamespaceLabels(ctx, r.Namespace)
	if err != nil {
		return "", err
	}
	applies, unknown, err := c.records(ctx, r, kruise.NamedOnWorkload, labels)
	switch {
	case err != nil:
		return "", err
	case unknown != "":
		return "whether the gate is installed is unknown: " + unknown, nil
	case !applies:
		return "the gate is not installed for the namespace " + r.Namespace + ", or not as this version of Slipway " +
			"writes it: run `slipway guard install`", nil
	}
	return "an API server does not apply the gate in the first seconds after its start, or after the creation of a " +
		"Rollout or of the gate", nil
}

// record writes the record of a change that was not held. Without it the change is still shown on the object.
func (c *Controller) record(ctx context.Context, r *v1beta1.Rollout, w *kruise.Workload, text string) {
	spec, _, err := kruise.SpecOf(r)
	if err == nil {
		was := ""
		if r.Status.Slipway != nil {
			was = r.Status.Slipway.Template
		}
		err = c.releases.RecordNotHeld(ctx, kruise.Unheld{Spec: spec, Object: kruise.RefOf(r), Reason: text,
			New: strategy.Revision{Template: w.Template, Name: w.Revision, Images: w.Images}, Old: was, At: time.Now()})
	}
	if err != nil {
		c.options.Log.Error("the record of a change that was not held could not be written", "rollout",
			r.Namespace+"/"+r.Name, "error", err)
	}
}
