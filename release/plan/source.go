package plan

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// checkSource holds what the item's deployment deploys from against the rules. Keys of another deployment are legal (the source document's own
// example has them): warned of, not used.
func (r *itemRules) checkSource() {
	values := map[string]string{
		keyHTTPSrcURI: r.item.HTTPSrcURI, keyCompileRepoPath: r.item.CompileRepoPath, keyCompileRepoBranch: r.item.CompileRepoBranch,
	}
	for _, source := range []struct {
		key   string
		of    Operation
		what  string
		legal func(string) error
	}{
		{keyHTTPSrcURI, HTTPUploadDeploy, "the address of the code package", validPackageURI},
		{keyCompileRepoPath, CompileDeploy, "the address of the Git repository", validRepository},
		{keyCompileRepoBranch, CompileDeploy, "the branch that is compiled", validBranch},
	} {
		value := values[source.key]
		if r.item.Deployment != source.of {
			if value != "" {
				r.warn(source.key, fmt.Sprintf("is not used: the deployment is %s, and only %s has %s", r.item.Deployment, source.of, source.what))
			}
			continue
		}
		if r.present(source.key, value, fmt.Sprintf("%s needs %s", source.of, source.what)) {
			if err := source.legal(value); err != nil {
				r.refuse(source.key, "%s", err)
			}
		}
	}
}

func validPackageURI(text string) error { return catalog.ValidURL(text, "http", "https") }

// shortRepository is Git's short form of an SSH address: "git@host:group/app.git". The path must not begin with ":", which Git takes for the
// name of a helper program.
var shortRepository = regexp.MustCompile(`^([A-Za-z0-9_][-A-Za-z0-9_.]*@)?[A-Za-z0-9][-A-Za-z0-9.]*:[^:]`)

// validRepository says what is wrong with the address of a Git repository.
func validRepository(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return catalog.ValidURL(text, "http", "https", "ssh", "git")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }):
		return fmt.Errorf("%s is not the address of a Git repository: it has a blank, a control character or a backslash in it", strictyaml.Quote(text))
	case !shortRepository.MatchString(text):
		return fmt.Errorf("%s is not the address of a Git repository: write http://, https://, ssh:// or git:// and the rest, or user@host:path",
			strictyaml.Quote(text))
	}
	return nil
}
