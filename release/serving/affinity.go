package serving

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// The affinity modes of a serving.
const (
	affinityNone = "none"
	affinitySame = "affinity"
	affinityAnti = "anti-affinity"
)

// affinityWeight is the greatest that Kubernetes knows.
const affinityWeight = 100

// affinity is the party's own or its template's; else, by the serving's mode, none, the same host where possible, or different hosts where possible.
func (d deployed) affinity() *corev1.Affinity {
	if own := d.template.Spec.Affinity; own != nil {
		return d.selectOwnPods(own.DeepCopy())
	}
	terms := []corev1.WeightedPodAffinityTerm{{
		Weight:          affinityWeight,
		PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: d.ownPods(), TopologyKey: corev1.LabelHostname},
	}}
	switch d.version.AffinityMode {
	case affinityNone:
		return nil
	case affinitySame:
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
}

func (d deployed) ownPods() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{kuscia.LabelWorkload: d.name}}
}

// selectOwnPods lets the terms that name no pods mean the party's own: whoever writes an AppImage does not know the names of its Deployments, and to
// Kubernetes a term without a selector means no pod at all.
func (d deployed) selectOwnPods(a *corev1.Affinity) *corev1.Affinity {
	fill := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			if required[i].LabelSelector == nil {
				required[i].LabelSelector = d.ownPods()
			}
		}
		for i := range preferred {
			if preferred[i].PodAffinityTerm.LabelSelector == nil {
				preferred[i].PodAffinityTerm.LabelSelector = d.ownPods()
			}
		}
	}
	if a.PodAffinity != nil {
		fill(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		fill(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return a
}
