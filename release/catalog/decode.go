package catalog

import (
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"slipway.io/slipway/release/strictyaml"
)

// Check is an additional check of an entry. It gets the entry's fields as written, and adds its findings.
//
// +kubebuilder:object:generate=false
type Check func(s Service, fields strictyaml.Mapping, found *strictyaml.Findings)

// Decode reads a catalogue entry from YAML or JSON, strictly, and reports all errors at once. The Service is valid only
// without errors. strategy.DecodeService checks the strategy's content, not this function.
func Decode(data []byte, checks ...Check) (Service, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Service{}, found.Sorted()
	}
	fields := root.Mapping("displayName", "workloads", "deadlineSeconds", "package", "build", "strategy", "policy")
	s := decodeService(fields)
	s.check(found)
	for _, check := range checks {
		check(s, fields, found)
	}
	return s, found.Sorted()
}

func decodeService(m strictyaml.Mapping) Service {
	s := Service{
		DisplayName:     m.Field("displayName").Text(),
		DeadlineSeconds: m.Field("deadlineSeconds").Integer(1, maxDeadlineSeconds),
	}
	for _, entry := range m.Field("workloads").List() {
		s.Workloads = append(s.Workloads, decodeWorkload(entry))
	}
	if field := m.Field("package"); field.Present() {
		s.Package = decodePackage(field)
	}
	if field := m.Field("build"); field.Present() {
		s.Build = decodeBuild(field)
	}
	s.Strategy, s.Policy = decodeObject(m.Field("strategy")), decodeObject(m.Field("policy"))
	return s
}

// decodeObject returns an object as raw JSON; nil if it is absent.
func decodeObject(v strictyaml.Value) *apiextensionsv1.JSON {
	if !v.Present() {
		return nil
	}
	raw := v.Object()
	if raw == nil {
		return nil
	}
	return &apiextensionsv1.JSON{Raw: raw}
}

func decodeWorkload(v strictyaml.Value) Workload {
	m := v.Mapping("party", "namespace", "workloadRef", "labels", "replicas")
	w := Workload{Party: m.Field("party").Text(), Namespace: m.Field("namespace").Text(),
		Labels: m.Field("labels").Strings()}
	if field := m.Field("workloadRef"); field.Present() {
		ref := field.Mapping("apiVersion", "kind", "name")
		w.WorkloadRef = WorkloadRef{APIVersion: ref.Field("apiVersion").Text(), Kind: ref.Field("kind").Text(),
			Name: ref.Field("name").Text()}
	}
	if field := m.Field("replicas"); field.Present() {
		replicas := int32(field.Integer(1, math.MaxInt32))
		w.Replicas = &replicas
	}
	return w
}

func decodePackage(v strictyaml.Value) *Package {
	m := v.Mapping("container", "mountPath", "credentials", "unpack", "file")
	p := &Package{Container: m.Field("container").Text(), MountPath: m.Field("mountPath").Text(),
		Credentials: m.Field("credentials").Text(),
		File:        m.Field("file").Text()}
	if field := m.Field("unpack"); field.Present() {
		p.Unpack = new(field.Bool())
	}
	return p
}

func decodeBuild(v strictyaml.Value) *Build {
	m := v.Mapping("jobTemplate", "image", "package", "container", "credentials", "deadlineSeconds")
	return &Build{
		JobTemplate:     apiextensionsv1.JSON{Raw: m.Field("jobTemplate").Object()},
		Image:           m.Field("image").Text(),
		Package:         m.Field("package").Text(),
		Container:       m.Field("container").Text(),
		Credentials:     m.Field("credentials").Text(),
		DeadlineSeconds: m.Field("deadlineSeconds").Integer(1, maxDeadlineSeconds),
	}
}
