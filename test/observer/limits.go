package observer

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits are the limits of a workload for unavailable and excess pods, as its owner has set them.
type Limits struct {
	// Unavailable is the maximum of unavailable pods, Surge the maximum of pods beyond the workload's size; each a
	// number or a percentage.
	Unavailable, Surge intstr.IntOrString
	// unavailableUp and surgeUp are true if a percentage is rounded up, as the kind's own controller does.
	unavailableUp, surgeUp bool
	// atLeastOne is true for a kind that cannot surge: one pod may be unavailable even if the percentage yields none.
	atLeastOne bool
}

// MaxUnavailable returns how many pods of a workload of that size may be unavailable.
func (l Limits) MaxUnavailable(size int32) int32 {
	out := scaled(l.Unavailable, size, l.unavailableUp)
	if out == 0 && (l.atLeastOne || l.MaxSurge(size) == 0) {
		return 1
	}
	return out
}

// MaxSurge returns how many pods beyond its size a workload may have.
func (l Limits) MaxSurge(size int32) int32 { return scaled(l.Surge, size, l.surgeUp) }

func scaled(value intstr.IntOrString, of int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(of), up)
	if err != nil {
		return 0
	}
	return int32(n)
}

// limitsOf reads a workload's own limits, with the defaults of its kind.
func limitsOf(obj runtime.Object) Limits {
	none, one, quarter := intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromString("25%")
	switch o := obj.(type) {
	case *appsv1.Deployment:
		if o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			// It has no limit: every pod may be unavailable at once.
			return Limits{Unavailable: intstr.FromString("100%"), Surge: none}
		}
		l := Limits{Unavailable: quarter, Surge: quarter, surgeUp: true}
		if r := o.Spec.Strategy.RollingUpdate; r != nil {
			l.Unavailable, l.Surge = or(r.MaxUnavailable, l.Unavailable), or(r.MaxSurge, l.Surge)
		}
		return l
	case *appsv1.StatefulSet:
		l := Limits{Unavailable: one, Surge: none, atLeastOne: true}
		if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil {
			l.Unavailable = or(r.MaxUnavailable, l.Unavailable)
		}
		return l
	case *appsv1.DaemonSet:
		l := Limits{Unavailable: one, Surge: none, unavailableUp: true, surgeUp: true}
		if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil {
			l.Unavailable, l.Surge = or(r.MaxUnavailable, l.Unavailable), or(r.MaxSurge, l.Surge)
		}
		return l
	case *unstructured.Unstructured:
		return limitsOfCustom(o)
	}
	return Limits{Unavailable: none, Surge: none}
}

// limitsOfCustom reads the limits of a CloneSet, an Advanced StatefulSet or an Advanced DaemonSet.
func limitsOfCustom(o *unstructured.Unstructured) Limits {
	l := Limits{Unavailable: intstr.FromInt32(1), Surge: intstr.FromInt32(0), unavailableUp: true, surgeUp: true}
	at := []string{"spec", "updateStrategy", "rollingUpdate"}
	if o.GetKind() == "CloneSet" {
		at = at[:2]
		l.Unavailable = intstr.FromString("20%")
	}
	l.Unavailable = custom(o, l.Unavailable, append(at, "maxUnavailable")...)
	l.Surge = custom(o, l.Surge, append(at, "maxSurge")...)
	return l
}

func custom(o *unstructured.Unstructured, fallback intstr.IntOrString, path ...string) intstr.IntOrString {
	value, found, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	if !found {
		return fallback
	}
	switch v := value.(type) {
	case int64:
		return intstr.FromInt32(int32(v))
	case string:
		return intstr.Parse(v)
	}
	return fallback
}

func or(value *intstr.IntOrString, fallback intstr.IntOrString) intstr.IntOrString {
	if value == nil {
		return fallback
	}
	return *value
}

// sizeOf returns the desired number of pods of a workload.
func sizeOf(obj runtime.Object) int32 {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return *o.Spec.Replicas
	case *appsv1.StatefulSet:
		return *o.Spec.Replicas
	case *appsv1.DaemonSet:
		return o.Status.DesiredNumberScheduled
	case *unstructured.Unstructured:
		if size, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
			return int32(size)
		}
		if size, found, _ := unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled"); found {
			return int32(size)
		}
		return 1
	}
	return 0
}

func metaOf(obj runtime.Object) metav1.Object {
	m, _ := obj.(metav1.Object)
	return m
}
