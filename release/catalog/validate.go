package catalog

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workload"
)

// maxDeadlineSeconds is the maximum duration of one operation on a service: a day.
const maxDeadlineSeconds = 86400

// Validate returns all errors of an entry that did not come through Decode, by the same rules. The errors have no
// lines.
func (s Service) Validate() strictyaml.Errors {
	found := &strictyaml.Findings{}
	s.check(found)
	return found.Sorted()
}

func (s Service) check(found *strictyaml.Findings) {
	if len(s.Workloads) == 0 {
		found.Refuse(0, "workloads", "is required: a service has at least one workload")
	}
	first := map[string]int{}
	for i, w := range s.Workloads {
		field := strictyaml.Index("workloads", i)
		w.check(found, field)
		if earlier, taken := first[w.Identity()]; taken && w.WorkloadRef.Name != "" {
			found.Refuse(0, field, "is %s again, which is already workloads[%d]: name each object once", w, earlier)
			continue
		}
		first[w.Identity()] = i
	}
	if s.DeadlineSeconds < 0 || s.DeadlineSeconds > maxDeadlineSeconds {
		found.Refuse(0, "deadlineSeconds", "must be from 1 to %d, not %d", maxDeadlineSeconds, s.DeadlineSeconds)
	}
	if s.Package != nil {
		s.Package.check(found)
	}
	if s.Build != nil {
		s.Build.check(found)
	}
	if s.Policy != nil && s.Strategy == nil {
		found.Refuse(0, "policy", "belongs to a strategy, and there is none: add strategy, or leave it out")
	}
	s.checkRolloutNames(found)
}

// checkRolloutNames rejects workloads whose Rollouts would have the same name.
func (s Service) checkRolloutNames(found *strictyaml.Findings) {
	if !s.RollsOut() {
		return
	}
	first := map[[3]string]int{}
	for i, w := range s.Workloads {
		name := [3]string{w.PartyOrDefault(), w.Namespace, w.WorkloadRef.Name}
		earlier, taken := first[name]
		if taken && w.WorkloadRef.Name != "" && s.Workloads[earlier].WorkloadRef != w.WorkloadRef {
			found.Refuse(0, strictyaml.Index("workloads", i),
				"is %s, and workloads[%d] is %s: with a strategy each has a Rollout of its workload's name, and "+
					"one name has one Rollout; put them into different services", w, earlier, s.Workloads[earlier])
			continue
		}
		first[name] = i
	}
}

func (w Workload) check(found *strictyaml.Findings, field string) {
	if w.Party != "" {
		found.Check(0, strictyaml.Join(field, "party"), ValidParty(w.Party))
	}
	checkName(found, strictyaml.Join(field, "namespace"), w.Namespace, validation.IsDNS1123Label)
	w.WorkloadRef.check(found, strictyaml.Join(field, "workloadRef"))
	seen := map[string]bool{}
	for i, label := range w.Labels {
		at, wrong := strictyaml.Index(strictyaml.Join(field, "labels"), i), ValidLabel(label)
		if wrong == nil && seen[label] {
			wrong = fmt.Errorf("is %s a second time: name each label once", label)
		}
		found.Check(0, at, wrong)
		seen[label] = true
	}
	w.checkReplicas(found, strictyaml.Join(field, "replicas"))
}

func (w Workload) checkReplicas(found *strictyaml.Findings, field string) {
	switch {
	case w.Replicas == nil:
	case !w.WorkloadRef.Sized():
		found.Refuse(0, field, "does not apply: a DaemonSet has no size, it has a pod on every node; leave it out")
	case *w.Replicas < 1:
		found.Refuse(0, field, "must be at least 1, not %d: it is what START restores", *w.Replicas)
	}
}

func (r WorkloadRef) check(found *strictyaml.Findings, field string) {
	if r == (WorkloadRef{}) {
		found.Refuse(0, field, "is required: name the object by apiVersion, kind and name")
		return
	}
	if r.APIVersion == "" {
		found.Refuse(0, strictyaml.Join(field, "apiVersion"), "is required: write %s", APIVersion)
	}
	if r.Kind == "" {
		found.Refuse(0, strictyaml.Join(field, "kind"), "is required: %s can be released",
			workload.Join(OperatedKinds(), " and "))
	}
	if r.APIVersion != "" && r.Kind != "" && !found.Unreadable(strictyaml.Join(field, "apiVersion")) {
		found.Check(0, strictyaml.Join(field, "kind"), r.supported())
	}
	checkName(found, strictyaml.Join(field, "name"), r.Name, validation.IsDNS1123Subdomain)
}

func (p Package) check(found *strictyaml.Findings) {
	checkName(found, "package.container", p.Container, validation.IsDNS1123Label)
	switch {
	case p.MountPath == "":
		found.Refuse(0, "package.mountPath", "is required: give the folder in the container where the package is "+
			"unpacked")
	case !path.IsAbs(p.MountPath):
		found.Refuse(0, "package.mountPath", "must be an absolute path, not %s", strictyaml.Quote(p.MountPath))
	case p.MountPath != path.Clean(p.MountPath) || strings.Contains(p.MountPath, ":"):
		found.Refuse(0, "package.mountPath", "must be a plain path without \"..\", \".\", \"//\", \":\" and a \"/\" "+
			"at its end, not %s",
			strictyaml.Quote(p.MountPath))
	case p.MountPath == "/":
		found.Refuse(0, "package.mountPath", "must not be the root directory: the package would hide all that the "+
			"image holds")
	}
	if p.File != "" {
		found.Check(0, "package.file", source.ValidFile(p.File))
		if p.Unpacked() {
			found.Refuse(0, "package.file", "is for a package that is not unpacked: add unpack: false, or leave it out")
		}
	}
	if p.Credentials != "" {
		checkName(found, "package.credentials", p.Credentials, validation.IsDNS1123Subdomain)
	}
}

// checkName checks a name by one of Kubernetes' rules.
func checkName(found *strictyaml.Findings, field, name string, rule func(string) []string) {
	if name == "" {
		found.Refuse(0, field, "is required")
		return
	}
	if problems := rule(name); len(problems) > 0 {
		found.Refuse(0, field, "%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
}
