package podpolicy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// Decode parses a policy from YAML or JSON strictly and reports every error at once. A key without a value is an error,
// so that an unfinished rule is not taken for one that allows everything, and so is a document without a preset.
func Decode(data []byte) (Policy, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Policy{}, found.Sorted()
	}
	m := root.Mapping("preset", "images", "secrets", "serviceAccounts", "volumes", ruleTemplatePatch)
	p := Policy{Lists: DecodeLists(found, m), Digest: digest.Of(string(data))}
	if preset := m.Field("preset"); !preset.Present() {
		found.Refuse(0, "preset", "is missing: set open, baseline or restricted")
	} else if p.Preset = Preset(preset.Text()); p.Preset != "" && p.Preset != Open && checks[p.Preset] == nil {
		found.Refuse(0, "preset", "%s is no preset: set open, baseline or restricted",
			strictyaml.Quote(string(p.Preset)))
	}
	if patch := m.Field(ruleTemplatePatch); patch.Present() {
		p.NoTemplatePatch = !patch.Bool()
	}
	return p, found.Sorted()
}

// DecodeLists parses the keys images, secrets, serviceAccounts and volumes of a document.
func DecodeLists(found *strictyaml.Findings, m strictyaml.Mapping) (l Lists) {
	if images := m.Field("images"); images.Present() {
		l.ImagePrefixes = DecodeList(found, images, "allowedPrefixes", wrongPrefix)
		if images.Has("allowedPrefixes") && len(l.ImagePrefixes) == 0 {
			found.Refuse(0, RuleImages, "allows no image, and so no pod: name at least one prefix, or leave out images")
		}
	}
	if secrets := m.Field("secrets"); secrets.Present() {
		l.Secrets = DecodeList(found, secrets, "allowed", wrongName("Secret"))
	}
	if accounts := m.Field("serviceAccounts"); accounts.Present() {
		l.ServiceAccounts = DecodeList(found, accounts, "allowed", wrongName("ServiceAccount"))
	}
	if volumes := m.Field("volumes"); volumes.Present() {
		l.Volumes = DecodeList(found, volumes, "allowed", OneOf("a type of volumes", volumeTypes))
	}
	return l
}

// DecodeList parses a rule that is a list of texts under one required key. wrong returns what is wrong with an entry,
// "" if nothing is. The result is never nil: only listed entries are allowed.
func DecodeList(found *strictyaml.Findings, rule strictyaml.Value, key string, wrong func(string) string) []string {
	field := rule.Mapping(key).Field(key)
	if !field.Present() {
		found.Refuse(0, rule.Path(), "needs the key %s", key)
	}
	all := []string{}
	for _, entry := range field.List() {
		text := entry.Text()
		if reason := wrong(text); text != "" && reason != "" {
			found.Refuse(0, entry.Path(), "%s %s", strictyaml.Quote(text), reason)
		}
		all = append(all, text)
	}
	return all
}

// OneOf returns a function that returns why a text is none of these words; "" if it is one.
func OneOf(what string, words []string) func(string) string {
	return func(word string) string {
		if slices.Contains(words, word) {
			return ""
		}
		return "is not " + what + strictyaml.DidYouMean(word, words)
	}
}

// wrongPrefix returns why no image can match a prefix; "" if one can.
func wrongPrefix(prefix string) string {
	switch {
	case strings.Contains(prefix, "://"):
		return "is a URL: leave out the scheme before the registry's name"
	case strings.Contains(prefix, "@"):
		return "names a digest: leave out the @ and everything after it"
	case source.WithoutTag(prefix) != prefix:
		return "names a tag: leave out the colon and everything after it; a registry with a port ends with /, as in " +
			"localhost:5000/"
	case strings.ContainsAny(prefix, " \t\n*?") || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//"):
		return "is not a prefix of an image name: write it like registry.example/team/, without blanks and wildcards"
	}
	return ""
}

// wrongName returns a function that returns why a text is not the name of an object of that kind; "" if it is one.
func wrongName(kind string) func(string) string {
	return func(name string) string {
		if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
			return "is not the name of a " + kind + ": " + bad[0]
		}
		return ""
	}
}
