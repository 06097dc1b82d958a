package serving

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// fill sets every field to a value: strings to "x", numbers to 1.
func fill(v reflect.Value) {
	if q, is := v.Addr().Interface().(*resource.Quantity); is {
		*q = resource.MustParse("1")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// setFields returns the names of the non-zero fields of a struct, in their order.
func setFields(of any) []string {
	var set []string
	for v, i := reflect.ValueOf(of), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			set = append(set, v.Type().Field(i).Name)
		}
	}
	return set
}

// An AppImage and a party with all fields set lead to pods with these fields and no others. Before you add a field
// here, check whether it reaches beyond the pod; if so, add a rule to release/serving/admission.
func TestRender_SetsOnlyKnownPodFields(t *testing.T) {
	t.Parallel()
	var image kuscia.AppImageSpec
	var party kuscia.Party
	fill(reflect.ValueOf(&image).Elem())
	fill(reflect.ValueOf(&party).Elem())
	v := Version{ID: "s", Spec: kuscia.KusciaDeploymentSpec{Initiator: "x", Parties: []kuscia.Party{party}},
		AppImages: map[string]kuscia.AppImageSpec{"x": image}}
	d, err := v.renderInput(0)
	require.NoError(t, err)
	files, err := d.configure(d.injectedVariables(nil))
	require.NoError(t, err)
	spec := d.deployment(d.injectedVariables(nil), files).Spec.Template.Spec
	require.Equal(t, []string{"Volumes", "Containers", "AutomountServiceAccountToken", "Affinity"}, setFields(spec))
	require.False(t, *spec.AutomountServiceAccountToken, "no pod gets the token of its service account")
	require.Len(t, spec.Volumes, 1)
	require.Equal(t, []string{"ConfigMap"}, setFields(spec.Volumes[0].VolumeSource))
	require.Equal(t, configMapName(d.name), spec.Volumes[0].ConfigMap.Name,
		"the one volume is the serving's own ConfigMap")
	require.Len(t, spec.Containers, 1)
	c := spec.Containers[0]
	require.Equal(t, []string{"Name", "Image", "Command", "Args", "WorkingDir", "Ports", "EnvFrom", "Env", "Resources",
		"VolumeMounts", "LivenessProbe", "ReadinessProbe",
		"StartupProbe", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext"}, setFields(c))
	require.Equal(t, []string{"Name", "ContainerPort", "Protocol"}, setFields(c.Ports[0]),
		"no port of the node is taken")
}
