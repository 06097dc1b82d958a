package kruise

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// hashLabel is the label with the hash on a ControllerRevision of a CloneSet or an Advanced StatefulSet.
const hashLabel = "controller.kubernetes.io/hash"

// revision is one version of a pod template.
type revision struct {
	*appsv1.ControllerRevision
}

// hash returns the hash label; the name of the revision consists of the workload's name and the hash.
func (r *revision) hash() string {
	if h := r.Labels[hashLabel]; h != "" {
		return h
	}
	return r.Labels[appsv1.ControllerRevisionHashLabelKey]
}

func (r *revision) template() (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("revision %s: %w", r.Name, err)
	}
	return &data.Spec.Template, nil
}

// history has two revisions of a workload: update is that of its template, current the one before the update.
type history struct {
	update, current *revision
}

// revisions finds or creates the revision of the workload's template, and reads the revision that the status names as
// current.
func (c *controller) revisions(ctx context.Context, s *set) (*history, error) {
	known, err := c.ownRevisions(ctx, s)
	if err != nil {
		return nil, err
	}
	want, err := patchOf(s)
	if err != nil {
		return nil, err
	}
	h := &history{}
	newest := int64(0)
	for _, r := range known {
		newest = max(newest, r.Revision)
		if string(canonical(r.Data.Raw)) == string(want) {
			h.update = r
		}
		if r.Name == s.Status.CurrentRevision {
			h.current = r
		}
	}
	switch {
	case h.update == nil:
		if h.update, err = c.createRevision(ctx, s, want, newest+1); err != nil {
			return nil, err
		}
	case h.update.Revision < newest:
		again := h.update.DeepCopy()
		again.Revision = newest + 1
		r, err := c.kube.AppsV1().ControllerRevisions(s.Namespace).Update(ctx, again, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		h.update = &revision{r}
	}
	if h.current == nil {
		h.current = h.update
	}
	return h, c.deleteOldRevisions(ctx, s, h, known)
}

func (c *controller) ownRevisions(ctx context.Context, s *set) ([]*revision, error) {
	list, err := c.kube.AppsV1().ControllerRevisions(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var own []*revision
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], s) {
			own = append(own, &revision{&list.Items[i]})
		}
	}
	slices.SortFunc(own, func(a, b *revision) int { return int(a.Revision - b.Revision) })
	return own, nil
}

func (c *controller) createRevision(ctx context.Context, s *set, data []byte, number int64) (*revision, error) {
	sum := fnv.New32a()
	_, _ = sum.Write(data)
	hash := fmt.Sprintf("%08x", sum.Sum32())
	labels := maps.Clone(s.Spec.Template.Labels)
	if s.Kind == "DaemonSet" {
		labels[appsv1.ControllerRevisionHashLabelKey] = hash
	} else {
		labels[hashLabel] = hash
	}
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-" + hash, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{s.owner()}},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}
	made, err := c.kube.AppsV1().ControllerRevisions(s.Namespace).Create(ctx, r, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("revision %s belongs to another workload: %w", r.Name, err)
	}
	return &revision{made}, err
}

// deleteOldRevisions deletes the oldest revisions beyond the limit, except update and current.
func (c *controller) deleteOldRevisions(ctx context.Context, s *set, h *history, known []*revision) error {
	limit := 10
	if s.Spec.RevisionHistoryLimit != nil {
		limit = int(*s.Spec.RevisionHistoryLimit)
	}
	excess := len(known) - limit - 2
	for _, r := range known {
		if excess <= 0 {
			return nil
		}
		if r.Name == h.update.Name || r.Name == h.current.Name {
			continue
		}
		if err := c.kube.AppsV1().ControllerRevisions(s.Namespace).Delete(ctx, r.Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		excess--
	}
	return nil
}

// patchOf returns the data of a revision: a patch that restores this template.
func patchOf(s *set) ([]byte, error) {
	template := maps.Clone(s.template)
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// canonical returns the JSON with sorted keys.
func canonical(raw []byte) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
