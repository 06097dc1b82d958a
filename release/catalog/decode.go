package catalog

import (
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"slipway.io/slipway/release/strictyaml"
)

// Decode reads a catalogue entry from YAML or JSON, strictly, with all errors at once. The Service means nothing when there are errors.
func Decode(data []byte) (Service, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Service{}, found.Sorted()
	}
	s := decodeService(root)
	s.check(found)
	return s, found.Sorted()
}

func decodeService(v strictyaml.Value) Service {
	m := v.Mapping("displayName", "workloads", "deadlineSeconds", "package", "build", "strategy")
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
	if field := m.Field("strategy"); field.Present() {
		field.CannotRead("is not available yet: leave it out; deploys then use the workload's own update settings")
	}
	return s
}

func decodeWorkload(v strictyaml.Value) Workload {
	m := v.Mapping("party", "namespace", "workloadRef", "labels", "replicas")
	w := Workload{Party: m.Field("party").Text(), Namespace: m.Field("namespace").Text(), Labels: m.Field("labels").Strings()}
	if field := m.Field("workloadRef"); field.Present() {
		ref := field.Mapping("apiVersion", "kind", "name")
		w.WorkloadRef = WorkloadRef{APIVersion: ref.Field("apiVersion").Text(), Kind: ref.Field("kind").Text(), Name: ref.Field("name").Text()}
	}
	if field := m.Field("replicas"); field.Present() {
		replicas := int32(field.Integer(1, math.MaxInt32))
		w.Replicas = &replicas
	}
	return w
}

func decodePackage(v strictyaml.Value) *Package {
	m := v.Mapping("container", "mountPath", "credentials", "unpack", "file")
	p := &Package{Container: m.Field("container").Text(), MountPath: m.Field("mountPath").Text(), Credentials: m.Field("credentials").Text(),
		File: m.Field("file").Text()}
	if field := m.Field("unpack"); field.Present() {
		p.Unpack = new(field.Truth())
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
