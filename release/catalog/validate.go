package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workload"
)

// maxDeadlineSeconds is the maximum duration of one operation on a service: a day, as in the tags of DeadlineSeconds.
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
			"at its end, not %s", strictyaml.Quote(p.MountPath))
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

// maxIDLength is the maximum length of an ID or a label in characters.
const maxIDLength = 63

var (
	// idPattern is strict at the edges: an ID is part of paths and the name of an object, where "..", and "." or "-" at
	// either end, are illegal.
	idPattern = regexp.MustCompile(
		`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)
)

// ValidID returns what is wrong with the ID of a service or the name of a plan.
func ValidID(id string) error {
	return validWord(id, "an ID", `letters, digits, "-" and "."`,
		"begin and end each part between dots with a letter or digit", idPattern)
}

// ValidLabel returns what is wrong with a label of a workload.
func ValidLabel(label string) error {
	return validWord(label, "a label", `letters, digits, "-", "_" and "."`, "begin and end with a letter or digit",
		labelPattern)
}

// validWord checks a word against a pattern. what is its name in errors; madeOf and edges describe the pattern.
func validWord(word, what, madeOf, edges string, pattern *regexp.Regexp) error {
	_, noun, _ := strings.Cut(what, " ")
	switch {
	case word == "":
		return fmt.Errorf("is empty: %s is made of %s", what, madeOf)
	case len(word) > maxIDLength:
		return fmt.Errorf("%s is too long: %s has at most %d characters", strictyaml.Quote(word), what, maxIDLength)
	case !pattern.MatchString(word):
		return fmt.Errorf("%s is not a legal %s: use %s, and %s", strictyaml.Quote(word), noun, madeOf, edges)
	}
	return nil
}

// ValidParty returns what is wrong with the name of a party: it is the name of a Party object or of a namespace, with
// at most 63 characters.
func ValidParty(name string) error {
	if len(name) > maxIDLength {
		return fmt.Errorf("is too long: a party's name has at most %d characters", maxIDLength)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
	return nil
}

// maxURLLength is the maximum length of a URL in characters.
const maxURLLength = 2048

// ValidURL returns what is wrong with an absolute URL. It rejects a password, and in http any user: many people read
// plans, records and reports.
func ValidURL(text string, schemes ...string) error {
	parsed, err := url.Parse(text)
	switch {
	case len(text) > maxURLLength:
		return fmt.Errorf("is too long: a URL has at most %d characters", maxURLLength)
	case strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("is not a URL: it has a blank in it") // not quoted here, because it may contain a password
	case err != nil:
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the text, for the same reason
		}
		return fmt.Errorf("is not a URL: %w", err)
	case !slices.Contains(schemes, parsed.Scheme) || parsed.Hostname() == "": // url.Parse has lower-cased the scheme
		return fmt.Errorf("%s is not an absolute URL: it must begin with %s:// and name a host",
			strictyaml.Quote(parsed.Redacted()), strings.Join(schemes, ":// or "))
	}
	if _, hasPassword := parsed.User.Password(); hasPassword || parsed.User != nil &&
		strings.HasPrefix(parsed.Scheme, "http") {
		return errors.New("contains a user or a password, which every reader of the plan or its report would see: " +
			"leave it out and name a Secret in the catalogue")
	}
	return nil
}

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
	var s Service
	fields.Into(&s)
	s.check(found)
	for _, check := range checks {
		check(s, fields, found)
	}
	return s, found.Sorted()
}
