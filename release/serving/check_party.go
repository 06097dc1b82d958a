package serving

import (
	"encoding/json"
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
