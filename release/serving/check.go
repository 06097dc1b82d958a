package serving

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Problem is one thing that makes a version impossible to run.
type Problem struct {
	// Party is the index of the party that it is about, or Whole.
	Party int
	// Reason is one word for it, Message a sentence that says what to do.
	Reason  string
	Message string
}

// Whole is the Party of a problem of the serving as a whole.
const Whole = -1

// Why a version cannot be run, as Kuscia words it.
const (
	// ReasonValidateFailed: the serving's own specification.
	ReasonValidateFailed = "ValidateFailed"
	// ReasonBuildPartyKitInfoFailed: a party's AppImage, or that and what the party changes of it.
	ReasonBuildPartyKitInfoFailed = "BuildPartyKitInfoFailed"
	// ReasonAllocatePortsFailed: the ports of an AppImage.
	ReasonAllocatePortsFailed = "AllocatePortsFailed"
	// ReasonFillPartyClusterDefinesFailed: the parties cannot be told of each other.
	ReasonFillPartyClusterDefinesFailed = "FillPartyClusterDefinesFailed"
	// ReasonCreateConfigMapFailed: the configuration templates.
	ReasonCreateConfigMapFailed = "CreateConfigMapFailed"
	// ReasonCreateServiceFailed: names of Services.
	ReasonCreateServiceFailed = "CreateServiceFailed"
)

// MaxInputConfig is how large an input configuration may be, in bytes: it has to fit an environment variable.
const MaxInputConfig = 120 << 10

// prefixes are the legal prefixes of Services' names.
var prefixes = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$`)

// findings collects the problems of one party, or of the whole.
type findings struct {
	party    int
	problems []Problem
}

func (f *findings) refuse(reason, format string, args ...any) {
	f.problems = append(f.problems, Problem{Party: f.party, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// Check is everything that makes a version impossible to render or to run, all at once: first what concerns the whole, then party by
// party. What it finds no fault with, Render renders.
func (v Version) Check() []Problem {
	problems := v.checkDeclared()
	cluster := v.clusterParties()
	for i := range v.Spec.Parties {
		problems = append(problems, v.checkConfig(i, cluster)...)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Party - b.Party })
	return problems
}

// checkDeclared is all but the configuration files, which take rendering.
func (v Version) checkDeclared() []Problem {
	f := &findings{party: Whole}
	v.checkWhole(f)
	v.checkParties(f)
	if size := len(compact(clusterDefine{Parties: v.clusterParties()})); size > MaxInputConfig {
		f.refuse(ReasonFillPartyClusterDefinesFailed, "the parties and their services take %d bytes as CLUSTER_DEFINE, which has to fit an environment variable: "+
			"at most %d, so use fewer parties or fewer ports", size, MaxInputConfig)
	}
	problems := f.problems
	for i := range v.Spec.Parties {
		problems = append(problems, v.checkParty(i)...)
	}
	return problems
}

func (v Version) checkWhole(f *findings) {
	if bad := validation.IsDNS1123Subdomain(v.ID); len(bad) > 0 {
		f.refuse(ReasonValidateFailed, "serving ID %q is not a legal name: %s", v.ID, strings.Join(bad, "; "))
	} else if bad := validation.IsValidLabelValue(v.ID); len(bad) > 0 {
		f.refuse(ReasonValidateFailed, "serving ID %q cannot be a label: %s", v.ID, strings.Join(bad, "; "))
	}
	for _, label := range []struct{ name, value string }{{"UID", v.UID}, {"app type", v.AppType}} {
		if bad := validation.IsValidLabelValue(label.value); len(bad) > 0 {
			f.refuse(ReasonValidateFailed, "%s %q cannot be a label: %s", label.name, label.value, strings.Join(bad, "; "))
		}
	}
	switch v.AffinityMode {
	case "", affinityNone, affinitySame, affinityAnti:
	default:
		f.refuse(ReasonValidateFailed, "affinity mode %q is not known: use %s, %s or %s, or leave it out", v.AffinityMode, affinityNone, affinitySame, affinityAnti)
	}
	if size := len(v.Spec.InputConfig); size > MaxInputConfig {
		f.refuse(ReasonValidateFailed, "the input config has %d bytes, and at most %d fit an environment variable: put the large part where the application can fetch it",
			size, MaxInputConfig)
	}
	if strings.ContainsRune(v.Spec.InputConfig, 0) {
		f.refuse(ReasonValidateFailed, "the input config has a NUL byte, which an environment variable cannot hold: leave it out")
	}
}

// checkParties is what concerns the parties among themselves.
func (v Version) checkParties(f *findings) {
	if len(v.Spec.Parties) == 0 {
		f.refuse(ReasonValidateFailed, "parties can not be empty")
		return
	}
	initiates, first := false, map[[2]string]int{}
	for i, p := range v.Spec.Parties {
		initiates = initiates || p.DomainID == v.Spec.Initiator
		key := [2]string{p.DomainID, p.Role}
		if earlier, twice := first[key]; twice {
			f.refuse(ReasonValidateFailed, "parties[%d] is %s once more, which is parties[%d] already: give each party of a domain a role of its own", i, partyName(p), earlier)
			continue
		}
		first[key] = i
	}
	switch {
	case v.Spec.Initiator == "":
		f.refuse(ReasonValidateFailed, "initiator can not be empty")
	case !initiates:
		f.refuse(ReasonValidateFailed, "initiator %s should be one of the parties", v.Spec.Initiator)
	}
	v.checkServiceNames(f)
}

// checkServiceNames refuses two Services of one name in one namespace.
func (v Version) checkServiceNames(f *findings) {
	type owner struct{ party, port string }
	owners := map[[2]string]owner{}
	for i, p := range v.Spec.Parties {
		d, err := v.deployed(i)
		if err != nil {
			continue
		}
		for _, port := range d.served() {
			name := serviceName(p, d.name, port.Name)
			key := [2]string{p.DomainID, name}
			if other, taken := owners[key]; taken && other.party != partyName(p) {
				f.refuse(ReasonCreateServiceFailed, "Service %s of port %s of %s is also that of port %s of %s: give one of them another service name prefix",
					name, port.Name, partyName(p), other.port, other.party)
			}
			owners[key] = owner{party: partyName(p), port: port.Name}
		}
	}
}

// checkConfig renders the configuration files of a party.
func (v Version) checkConfig(index int, cluster []clusterParty) []Problem {
	d, err := v.deployed(index)
	if err != nil || len(d.configs) == 0 || len(d.template.Spec.Containers) == 0 {
		return nil
	}
	if _, err := d.configure(d.given(cluster)); err != nil {
		return []Problem{{Party: index, Reason: ReasonCreateConfigMapFailed, Message: partyName(d.party) + ": " + err.Error()}}
	}
	return nil
}

// checkParty is what concerns one party: what it says itself, then what it gets from its AppImage.
func (v Version) checkParty(index int) []Problem {
	f := &findings{party: index}
	p := v.Spec.Parties[index]
	name := partyName(p)
	if bad := validation.IsDNS1123Label(p.DomainID); len(bad) > 0 {
		f.refuse(ReasonValidateFailed, "%s: domain ID %q is not a legal name of a namespace: %s", name, p.DomainID, strings.Join(bad, "; "))
	}
	if p.ServiceNamePrefix != "" && !prefixes.MatchString(p.ServiceNamePrefix) {
		f.refuse(ReasonValidateFailed, "%s: service name prefix %q is invalid: regex used for validation is %q", name, p.ServiceNamePrefix, prefixes)
	}
	if v.Replicas(index) < 0 {
		f.refuse(ReasonValidateFailed, "%s: replicas must not be negative, and %d are asked for", name, v.Replicas(index))
	}
	checkStrategy(f, p)
	checkOwnSpec(f, p)
	d, err := v.deployed(index)
	if err != nil {
		f.refuse(ReasonBuildPartyKitInfoFailed, "%s", err)
		return f.problems
	}
	d.checkName(f)
	d.checkOwnContainers(f)
	d.checkImage(f)
	d.checkPorts(f)
	return f.problems
}

// checkName holds the names that come of the role against the rules of Kubernetes. Those that come of the ID alone are the whole's.
func (d deployed) checkName(f *findings) {
	if d.party.Role == "" {
		return
	}
	bad := validation.IsDNS1123Subdomain(d.name)
	if len(bad) == 0 {
		bad = validation.IsValidLabelValue(d.name)
	}
	if len(bad) > 0 {
		f.refuse(ReasonValidateFailed, "%s: its Deployment would be called %q, which is not a legal name: %s", partyName(d.party), d.name, strings.Join(bad, "; "))
	}
}

func checkStrategy(f *findings, p kuscia.Party) {
	s := p.Template.Strategy
	if s == nil {
		return
	}
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			f.refuse(ReasonValidateFailed, "%s: its strategy is Recreate, which has no rollingUpdate: leave that out", partyName(p))
		}
		return
	case "", appsv1.RollingUpdateDeploymentStrategyType:
	default:
		f.refuse(ReasonValidateFailed, "update strategy type should be Recreate or RollingUpdate for party/role %s/%s", p.DomainID, p.Role)
		return
	}
	rolling := strategy(s).RollingUpdate
	surge, surgeOK := checkMax(f, p, "maxSurge", *rolling.MaxSurge)
	unavailable, unavailableOK := checkMax(f, p, "maxUnavailable", *rolling.MaxUnavailable)
	if surgeOK && unavailableOK && surge == 0 && unavailable == 0 {
		f.refuse(ReasonValidateFailed, "%s: maxSurge and maxUnavailable are both 0, so that no pod could ever be replaced: raise one of them", partyName(p))
	}
	if _, percent := strings.CutSuffix(rolling.MaxUnavailable.String(), "%"); unavailableOK && percent && unavailable > 100 {
		f.refuse(ReasonValidateFailed, "%s: maxUnavailable must not be more than 100%%, and is %s", partyName(p), rolling.MaxUnavailable.String())
	}
}

var percentage = regexp.MustCompile(`^[0-9]{1,9}%$`)

// checkMax reads a number, or that of a percentage.
func checkMax(f *findings, p kuscia.Party, field string, value intstr.IntOrString) (int, bool) {
	if value.Type == intstr.Int && value.IntVal >= 0 {
		return int(value.IntVal), true
	}
	if value.Type == intstr.String && percentage.MatchString(value.StrVal) {
		n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
		return n, err == nil
	}
	f.refuse(ReasonValidateFailed, "%s: %s must be a number like 1 or a percentage like %s, not %q", partyName(p), field, defaultMax, value.String())
	return 0, false
}

// checkOwnSpec refuses what a party's template says and nobody would honour: anything but its affinity, and names and resources of its containers.
func checkOwnSpec(f *findings, p kuscia.Party) {
	if p.Template.Spec == nil {
		return
	}
	spec := p.Template.Spec.DeepCopy()
	containers := spec.Containers
	spec.Containers, spec.Affinity = nil, nil
	for _, field := range fieldsOf(spec, corev1.PodSpec{}) {
		f.refuse(ReasonValidateFailed, "%s: template.spec.%s is not taken over: a party has its own affinity and its own resources for containers, "+
			"anything else is the AppImage's", partyName(p), field)
	}
	seen := map[string]bool{}
	for _, c := range containers {
		if seen[c.Name] {
			f.refuse(ReasonValidateFailed, "%s: template.spec names container %q twice: put its resources together", partyName(p), c.Name)
		}
		seen[c.Name] = true
		if len(c.Resources.Claims) > 0 {
			f.refuse(ReasonValidateFailed, "%s: resources.claims of container %s in template.spec is not taken over: leave it out", partyName(p), c.Name)
		}
		c.Name, c.Resources = "", corev1.ResourceRequirements{}
		for _, field := range fieldsOf(c, corev1.Container{}) {
			f.refuse(ReasonValidateFailed, "%s: %s of a container in template.spec is not taken over: a party has its own resources for a container, "+
				"anything else is the AppImage's", partyName(p), field)
		}
	}
}

// fieldsOf are the fields of an object that differ from those of an empty one, by name.
func fieldsOf(object, empty any) []string {
	said, none := jsonFields(object), jsonFields(empty)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if string(said[name]) != string(none[name]) {
			names = append(names, name)
		}
	}
	return names
}

func jsonFields(object any) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	raw, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		// What cannot be written as JSON cannot have been read from it.
		return map[string]json.RawMessage{err.Error(): nil}
	}
	return fields
}

// checkOwnContainers refuses containers of a party's template that its AppImage does not have.
func (d deployed) checkOwnContainers(f *findings) {
	if d.party.Template.Spec == nil {
		return
	}
	var there []string
	for _, c := range d.template.Spec.Containers {
		there = append(there, c.Name)
	}
	for _, c := range d.party.Template.Spec.Containers {
		if !slices.Contains(there, c.Name) {
			f.refuse(ReasonBuildPartyKitInfoFailed, "%s: template.spec has a container %q, which AppImage %s does not have: it has %s. "+
				"Name one of those, or register the AppImage with a container of that name",
				partyName(d.party), c.Name, d.party.AppImageRef, strings.Join(there, ", "))
		}
	}
}
