package serving

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
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
