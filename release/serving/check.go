package serving

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
)

// Problem is one reason why a version cannot run.
type Problem struct {
	// Party is the index of the affected party, or WholeServing.
	Party int
	// Reason is one word for the problem, Message a sentence that says what to do.
	Reason  string
	Message string
}

// WholeServing is the Party of a problem of the whole serving.
const WholeServing = -1

// The reasons why a version cannot run, in Kuscia's words.
const (
	// ReasonValidateFailed: the specification of the serving is invalid.
	ReasonValidateFailed = "ValidateFailed"
	// ReasonBuildPartyKitInfoFailed: a party's AppImage is missing or invalid, or the party's overrides do not fit it.
	ReasonBuildPartyKitInfoFailed = "BuildPartyKitInfoFailed"
	// ReasonAllocatePortsFailed: the ports of an AppImage are invalid.
	ReasonAllocatePortsFailed = "AllocatePortsFailed"
	// ReasonFillPartyClusterDefinesFailed: the list of parties (CLUSTER_DEFINE) is too large.
	ReasonFillPartyClusterDefinesFailed = "FillPartyClusterDefinesFailed"
	// ReasonCreateConfigMapFailed: the configuration templates cannot be rendered.
	ReasonCreateConfigMapFailed = "CreateConfigMapFailed"
	// ReasonCreateServiceFailed: names of Services collide.
	ReasonCreateServiceFailed = "CreateServiceFailed"
)

// MaxInputConfig is the maximum size of an input configuration in bytes: it has to fit into an environment variable.
const MaxInputConfig = 120 << 10

// ServicePrefix matches the valid prefixes of Service names.
var ServicePrefix = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$`)

// findings collects the problems of one party, or of the whole serving.
type findings struct {
	party    int
	problems []Problem
}

// about returns a function that records problems with the same reason and message prefix.
func (f *findings) about(reason, prefix string) refusal {
	return func(format string, args ...any) {
		f.problems = append(f.problems, Problem{Party: f.party, Reason: reason,
			Message: prefix + fmt.Sprintf(format, args...)})
	}
}

type refusal func(format string, args ...any)

// unless records a problem if one of Kubernetes' validation functions returned errors.
func (refuse refusal) unless(bad []string, format string, args ...any) {
	if len(bad) > 0 {
		refuse(format+": %s", append(args, strings.Join(bad, "; "))...)
	}
}

// Check returns every problem that prevents a version from being rendered or run: first those of the whole serving,
// then by party. A version without problems can be rendered.
func (v Version) Check() []Problem {
	problems, cluster := v.checkDeclared(), v.clusterParties()
	for i := range v.Spec.Parties {
		d, err := v.renderInput(i)
		if err != nil || len(d.configs) == 0 || len(d.template.Spec.Containers) == 0 {
			continue
		}
		if _, err := d.configure(d.injectedVariables(cluster)); err != nil {
			problems = append(problems, Problem{Party: i, Reason: ReasonCreateConfigMapFailed,
				Message: partyName(d.party) + ": " + err.Error()})
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Party - b.Party })
	return problems
}

// checkDeclared checks everything except the configuration files, which need rendering.
func (v Version) checkDeclared() []Problem {
	f := &findings{party: WholeServing}
	v.checkServing(f.about(ReasonValidateFailed, ""))
	v.checkParties(f)
	if size := len(compact(clusterDefine{Parties: v.clusterParties()})); size > MaxInputConfig {
		f.about(ReasonFillPartyClusterDefinesFailed,
			"")("the parties and their services take %d bytes as CLUSTER_DEFINE, "+
			"which has to fit an environment variable: at most %d, so use fewer parties or fewer ports", size,
			MaxInputConfig)
	}
	for i := range v.Spec.Parties {
		f.party = i
		v.checkParty(f, i)
	}
	return f.problems
}

func (v Version) checkServing(refuse refusal) {
	bad := validation.IsDNS1123Subdomain(v.ID)
	refuse.unless(bad, "serving ID %q is not a legal name", v.ID)
	if len(bad) == 0 {
		refuse.unless(validation.IsValidLabelValue(v.ID), "serving ID %q cannot be a label", v.ID)
	}
	refuse.unless(validation.IsValidLabelValue(v.UID), "UID %q cannot be a label", v.UID)
	refuse.unless(validation.IsValidLabelValue(v.AppType), "app type %q cannot be a label", v.AppType)
	if !slices.Contains([]string{"", affinityNone, affinitySame, affinityAnti}, v.AffinityMode) {
		refuse("affinity mode %q is not known: use %s, %s or %s, or leave it out", v.AffinityMode, affinityNone,
			affinitySame, affinityAnti)
	}
	if size := len(v.Spec.InputConfig); size > MaxInputConfig {
		refuse("the input config has %d bytes, and at most %d fit an environment variable: put the large part where "+
			"the application can fetch it", size, MaxInputConfig)
	}
	if strings.ContainsRune(v.Spec.InputConfig, 0) {
		refuse("the input config has a NUL byte, which an environment variable cannot hold: leave it out")
	}
}

// checkParties checks the parties against each other.
func (v Version) checkParties(f *findings) {
	refuse := f.about(ReasonValidateFailed, "")
	if len(v.Spec.Parties) == 0 {
		refuse("parties can not be empty")
		return
	}
	initiates, first := false, map[[2]string]int{}
	for i, p := range v.Spec.Parties {
		initiates = initiates || p.DomainID == v.Spec.Initiator
		key := [2]string{p.DomainID, p.Role}
		if earlier, twice := first[key]; twice {
			refuse("parties[%d] is %s again, like parties[%d]: give each party of a domain its own role",
				i, partyName(p), earlier)
			continue
		}
		first[key] = i
	}
	switch {
	case v.Spec.Initiator == "":
		refuse("initiator can not be empty")
	case !initiates:
		refuse("initiator %s should be one of the parties", v.Spec.Initiator)
	}
	v.checkServiceNames(f.about(ReasonCreateServiceFailed, ""))
}

// checkServiceNames refuses two Services with the same name in one namespace.
func (v Version) checkServiceNames(refuse refusal) {
	type owner struct{ party, port string }
	owners := map[[2]string]owner{}
	for i, p := range v.Spec.Parties {
		d, err := v.renderInput(i)
		if err != nil {
			continue
		}
		for _, port := range d.exposedPorts() {
			name := serviceName(p, d.name, port.Name)
			key := [2]string{p.DomainID, name}
			if other, taken := owners[key]; taken && other.party != partyName(p) {
				refuse("Service %s of port %s of %s is also that of port %s of %s: give one of them another service "+
					"name prefix", name, port.Name, partyName(p), other.port, other.party)
			}
			owners[key] = owner{party: partyName(p), port: port.Name}
		}
	}
}

// checkParty checks one party: first its own fields, then what it takes from its AppImage.
func (v Version) checkParty(f *findings, index int) {
	p := v.Spec.Parties[index]
	refuse := f.about(ReasonValidateFailed, partyName(p)+": ")
	refuse.unless(validation.IsDNS1123Label(p.DomainID), "domain ID %q is not a legal name of a namespace", p.DomainID)
	if p.ServiceNamePrefix != "" && !ServicePrefix.MatchString(p.ServiceNamePrefix) {
		refuse("service name prefix %q is invalid: regex used for validation is %q", p.ServiceNamePrefix, ServicePrefix)
	}
	if v.Replicas(index) < 0 {
		refuse("replicas must not be negative, but %d are requested", v.Replicas(index))
	}
	if s := p.Template.Strategy; s != nil {
		switch s.Type {
		case "", appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType:
			checkStrategy(refuse, s)
		default:
			f.about(ReasonValidateFailed, "")("update strategy type should be Recreate or RollingUpdate for "+
				"party/role %s/%s", p.DomainID, p.Role)
		}
	}
	if p.Template.Spec != nil {
		checkPartyTemplate(refuse, p.Template.Spec.DeepCopy())
	}
	d, err := v.renderInput(index)
	if err != nil {
		f.about(ReasonBuildPartyKitInfoFailed, "")("%s", err)
		return
	}
	if p.Role != "" { // a name that consists of the ID alone is checked by checkServing
		bad := validation.IsDNS1123Subdomain(d.name)
		if len(bad) == 0 {
			bad = validation.IsValidLabelValue(d.name)
		}
		refuse.unless(bad, "its Deployment would be called %q, which is not a legal name", d.name)
	}
	d.checkOwnContainers(f.about(ReasonBuildPartyKitInfoFailed, partyName(p)+": "))
	d.checkImage(f)
	d.checkPorts(f.about(ReasonAllocatePortsFailed, fmt.Sprintf("%s: AppImage %s: ", partyName(p), p.AppImageRef)))
}

func checkStrategy(refuse refusal, s *appsv1.DeploymentStrategy) {
	rolling := strategy(s).RollingUpdate
	if rolling == nil {
		if s.RollingUpdate != nil {
			refuse("its strategy is Recreate, which has no rollingUpdate: leave that out")
		}
		return
	}
	surge, surgeOK := checkMax(refuse, "maxSurge", *rolling.MaxSurge)
	unavailable, unavailableOK := checkMax(refuse, "maxUnavailable", *rolling.MaxUnavailable)
	if surgeOK && unavailableOK && surge == 0 && unavailable == 0 {
		refuse("maxSurge and maxUnavailable are both 0, so that no pod could ever be replaced: raise one of them")
	}
	if text := rolling.MaxUnavailable.String(); unavailableOK && strings.HasSuffix(text, "%") && unavailable > 100 {
		refuse("maxUnavailable must not be more than 100%%, and is %s", text)
	}
}

var percentage = regexp.MustCompile(`^[0-9]{1,9}%$`)

// checkMax parses a number or a percentage, and returns its number.
func checkMax(refuse refusal, field string, value intstr.IntOrString) (int, bool) {
	if value.Type == intstr.Int && value.IntVal >= 0 {
		return int(value.IntVal), true
	}
	if value.Type == intstr.String && percentage.MatchString(value.StrVal) {
		n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
		return n, err == nil
	}
	refuse("%s must be a number like 1 or a percentage like %s, not %q", field, defaultMax, value.String())
	return 0, false
}

// checkPartyTemplate refuses fields of a party's template that would be ignored: anything except its affinity, and
// names and resources of its containers.
func checkPartyTemplate(refuse refusal, spec *corev1.PodSpec) {
	containers := spec.Containers
	spec.Containers, spec.Affinity = nil, nil
	for _, field := range fieldsOf(spec, &corev1.PodSpec{}) {
		refuse("template.spec.%s is not supported: a party can set its affinity and its containers' resources, "+
			"everything else comes from the AppImage", field)
	}
	seen := map[string]bool{}
	for _, c := range containers {
		if seen[c.Name] {
			refuse("template.spec names container %q twice: merge its resources", c.Name)
		}
		seen[c.Name] = true
		if len(c.Resources.Claims) > 0 {
			refuse("resources.claims of container %s in template.spec is not supported: leave it out", c.Name)
		}
		c.Name, c.Resources = "", corev1.ResourceRequirements{}
		for _, field := range fieldsOf(&c, &corev1.Container{}) {
			refuse("%s of a container in template.spec is not supported: a party can set its containers' resources, "+
				"everything else comes from the AppImage", field)
		}
	}
}

// fieldsOf returns the names of the fields in which an object differs from an empty one.
func fieldsOf(object, empty any) []string {
	said, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil { // cannot happen: the object was decoded from JSON
		return []string{err.Error()}
	}
	none, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(empty)
	maps.DeleteFunc(said, func(name string, value any) bool { return reflect.DeepEqual(value, none[name]) })
	return slices.Sorted(maps.Keys(said))
}

// checkOwnContainers refuses containers of a party's template that its AppImage does not have.
func (d renderInput) checkOwnContainers(refuse refusal) {
	if d.party.Template.Spec == nil {
		return
	}
	there := phrase.Each(d.template.Spec.Containers, func(c kuscia.Container) string { return c.Name })
	for _, c := range d.party.Template.Spec.Containers {
		if !slices.Contains(there, c.Name) {
			refuse("template.spec has a container %q, which AppImage %s does not have: it has %s. "+
				"Name one of those, or register the AppImage with a container of that name", c.Name,
				d.party.AppImageRef, strings.Join(there, ", "))
		}
	}
}
