package admission

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// Decode parses a policy from YAML or JSON strictly and reports every error at once. A key without a value is an error,
// so that an unfinished rule is not taken for one that allows everything.
func Decode(data []byte) (Policy, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Policy{}, found.Sorted()
	}
	m := root.Mapping("images", "privileged", "secrets", "serviceAccounts")
	p := Policy{Privileged: m.Field("privileged").Bool()}
	if images := m.Field("images"); images.Present() {
		p.ImagePrefixes = decodeList(found, images, "allowedPrefixes", wrongPrefix)
		if images.Has("allowedPrefixes") && len(p.ImagePrefixes) == 0 {
			found.Refuse(0, ruleImages, "allows no image, and so no pod: name at least one prefix, or leave out images")
		}
	}
	if secrets := m.Field("secrets"); secrets.Present() {
		p.Secrets = decodeList(found, secrets, "allowed", wrongSecret)
	}
	if accounts := m.Field("serviceAccounts"); accounts.Present() {
		p.ServiceAccounts = decodeList(found, accounts, "allowed", wrongAccount)
	}
	return p, found.Sorted()
}

// decodeList parses a rule that is a list of texts under one required key. wrong returns what is wrong with an entry,
// "" if nothing is. The result is never nil: only listed entries are allowed.
func decodeList(found *strictyaml.Findings, rule strictyaml.Value, key string, wrong func(string) string) []string {
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

// wrongPrefix returns why no image can match a prefix; "" if one can.
func wrongPrefix(prefix string) string {
	switch {
	case strings.Contains(prefix, "://"):
		return "is a URL: leave out the scheme before the registry's name"
	case strings.Contains(prefix, "@"):
		return "names a digest: leave out the @ and everything after it"
	case tagAt(prefix) >= 0:
		return "names a tag: leave out the colon and everything after it; a registry with a port ends with /, as in " +
			"localhost:5000/"
	case strings.ContainsAny(prefix, " \t\n*?") || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//"):
		return "is not a prefix of an image name: write it like registry.example/team/, without blanks and wildcards"
	}
	return ""
}

// wrongSecret returns why a name is not the name of a Secret; "" if it is valid.
func wrongSecret(name string) string {
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return "is not the name of a Secret: " + bad[0]
	}
	return ""
}

// wrongAccount returns why a name is not the name of a service account; "" if it is valid.
func wrongAccount(name string) string {
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return "is not the name of a ServiceAccount: " + bad[0]
	}
	return ""
}
