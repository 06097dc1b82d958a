package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// maxItems is the maximum number of items of a plan.
const maxItems = 1000

const tooManyItems = "has %d items: a plan has at most %d, so split it"

// The values are in the order of the source document; Slipway's own operation is last.
var (
	operations = []Operation{Start, Stop, Restart, HTTPUploadDeploy, CompileDeploy, Restore}
	methods    = []Method{Parallel, Sequential}
)

// Validate checks a plan that did not come through Decode by the same rules. Its warnings and errors have no lines.
func (d Document) Validate() ([]Warning, strictyaml.Errors) {
	found := &strictyaml.Findings{}
	warnings := d.check(found)
	return warnings, found.Sorted()
}

// check applies every rule that needs no catalogue.
func (d Document) check(found *strictyaml.Findings) []Warning {
	switch {
	case len(d.Items) == 0:
		found.Refuse(0, keyItems, "is required: a plan has at least one item")
	case len(d.Items) > maxItems:
		found.Refuse(0, keyItems, tooManyItems, len(d.Items), maxItems)
	}
	var warnings []Warning
	for i, item := range d.Items {
		r := itemRules{item: item, index: i, found: found}
		r.check()
		warnings = append(warnings, r.warnings...)
	}
	d.refuseRepeated(found)
	d.CheckTimes("", found)
	return warnings
}

// itemRules checks one item against the rules of docs/plans.md.
type itemRules struct {
	item     Item
	index    int
	found    *strictyaml.Findings
	warnings []Warning
}

func (r *itemRules) check() {
	if r.checkPresent(keyServiceID, string(r.item.ServiceID), "name the service of the catalogue") {
		r.checkRule(keyServiceID, catalog.ValidID(string(r.item.ServiceID)))
	}
	if r.checkPresent(keyDeployment, string(r.item.Deployment), "write one of "+strictyaml.List(operations)) {
		if slices.Contains(operations, r.item.Deployment) {
			r.checkSource()
		} else {
			r.checkRule(keyDeployment, notOneOf(r.item.Deployment, operations))
		}
	}
	if method := r.item.ContainerExecMethod; method != "" && !slices.Contains(methods, method) {
		r.checkRule(keyExecMethod, notOneOf(method, methods))
	}
	r.checkLabels()
}

func (r *itemRules) checkLabels() {
	if r.item.DeployLabel == "" {
		return
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(r.item.DeployLabel, ",") {
		label := strings.TrimSpace(part)
		switch err := catalog.ValidLabel(label); {
		case label == "":
			r.refuse(keyDeployLabel, "has an empty part: separate the labels by single commas, and leave the key out "+
				"to take all workloads")
			return
		case err != nil:
			r.refuse(keyDeployLabel, "%s", err)
		case seen[label]:
			r.warn(keyDeployLabel, "names the label "+label+" twice")
		}
		seen[label] = true
	}
}

// checkPresent refuses an item without the key, and reports whether there is a value.
func (r *itemRules) checkPresent(key, value, remedy string) bool {
	if value == "" {
		r.refuse(key, "is required: %s", remedy)
	}
	return value != ""
}

func (r *itemRules) refuse(key, format string, args ...any) {
	r.found.Refuse(r.index+1, itemField(r.index, key), format, args...)
}

// checkRule records the error of a rule; nil is ignored.
func (r *itemRules) checkRule(key string, wrong error) {
	r.found.Check(r.index+1, itemField(r.index, key), wrong)
}

func (r *itemRules) warn(key, reason string) {
	field := itemField(r.index, key)
	r.warnings = append(r.warnings, Warning{Item: r.index + 1, Field: field, Line: r.found.Line(field), Reason: reason})
}

func notOneOf[T ~string](word T, legal []T) error {
	quoted := strictyaml.Quote(string(word))
	return fmt.Errorf("must be one of %s, not %s%s", strictyaml.List(legal), quoted,
		strictyaml.DidYouMean(string(word), legal))
}

// refuseRepeated refuses a service that is named twice in one wave: both would change it at the same time.
func (d Document) refuseRepeated(found *strictyaml.Findings) {
	type place struct {
		service  ServiceID
		priority int64
	}
	items := map[place][]int{}
	for i, item := range d.Items {
		unreadable := found.Unreadable(itemField(i, keyServiceID)) || found.Unreadable(itemField(i, keyPriority))
		if at := (place{item.ServiceID, item.Priority}); !unreadable && catalog.ValidID(string(item.ServiceID)) == nil {
			items[at] = append(items[at], i)
		}
	}
	for i, item := range d.Items {
		same := items[place{item.ServiceID, item.Priority}]
		if len(same) < 2 || same[1] != i {
			continue // reported once, at the second of them
		}
		times, have := "twice", "both have"
		if len(same) > 2 {
			times, have = "more than twice", "all have"
		}
		found.Refuse(i+1, itemField(i, keyServiceID),
			"names service %s %s in one wave (items %s): %s the priority %d; give each a priority of its own, or "+
				"keep one of them", item.ServiceID, times, numbers(same), have, item.Priority)
	}
}

func itemField(index int, key string) string {
	return strictyaml.Join(strictyaml.Index(keyItems, index), key)
}

// maxListed is the maximum number of items that a message lists.
const maxListed = 10

// numbers formats the items' numbers, counted from 1: "1 and 3", "1, 2 and 5".
func numbers(indexes []int) string {
	texts := phrase.Each(indexes, func(index int) string { return strconv.Itoa(index + 1) })
	last := len(texts) - 1
	if last >= maxListed {
		return phrase.List(texts, maxListed)
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// checkSource checks the source keys of the item's deployment. Keys of other deployments are legal, but cause a
// warning.
func (r *itemRules) checkSource() {
	for _, given := range []struct {
		key, value string
		of         Operation
		what       string
		legal      func(string) error
	}{
		{keyHTTPSrcURI, r.item.HTTPSrcURI, HTTPUploadDeploy, "the address of the code package", validPackageURI},
		{keyCompileRepoPath, r.item.CompileRepoPath, CompileDeploy, "the address of the Git repository",
			validRepository},
		{keyCompileRepoBranch, r.item.CompileRepoBranch, CompileDeploy, "the branch that is compiled", validBranch},
		{keyRestoreTask, r.item.RestoreTask, Restore, "the task whose changes are reversed", validTask},
	} {
		key, value := given.key, given.value
		if r.item.Deployment != given.of {
			if value != "" {
				r.warn(key, fmt.Sprintf("is not used: the deployment is %s, and only %s has %s", r.item.Deployment,
					given.of, given.what))
			}
			continue
		}
		if r.checkPresent(key, value, fmt.Sprintf("%s needs %s", given.of, given.what)) {
			r.checkRule(key, given.legal(value))
		}
	}
	if reason := r.item.ReadableSecret(); reason != "" {
		r.warn(keyHTTPSrcURI, reason)
	}
	r.checkRestoreItem()
}

// ReadableSecret returns the warning about a package's URL with a signature or a token in its query; "" if it has none.
// A plan and the records of its tasks are objects of the home cluster, so their readers could fetch the package too.
func (i Item) ReadableSecret() string {
	parameter := source.SecretParameter(i.HTTPSrcURI)
	if parameter == "" {
		return ""
	}
	return fmt.Sprintf("has the parameter %s, which looks like a signature or a token: all readers of the plan and of "+
		"its tasks' records can read it; take the query out of the URL, and write it into the Secret that "+
		"package.credentials of service %s names (key `query`)", parameter, i.ServiceID)
}

func (r *itemRules) checkRestoreItem() {
	switch n := r.item.RestoreItem; {
	case n == 0:
	case r.item.Deployment != Restore:
		r.warn(keyRestoreItem, fmt.Sprintf("is not used: the deployment is %s, and only %s reverses items of a task",
			r.item.Deployment, Restore))
	case n < 1 || n > maxItems:
		r.refuse(keyRestoreItem, "must be from 1 to %d: it is the number of an item of task %s", maxItems,
			r.item.RestoreTask)
	}
}

// taskID matches the task IDs that package start generates.
var taskID = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// maxTaskID is the maximum length of a task's ID.
const maxTaskID = 63

// IsTaskID reports whether a text has the form of a task's ID.
func IsTaskID(id string) bool { return len(id) <= maxTaskID && taskID.MatchString(id) }

func validTask(id string) error {
	if !IsTaskID(id) {
		return fmt.Errorf("%s is not the ID of a task: `slipway task list` shows them", strictyaml.Quote(id))
	}
	return nil
}

func validPackageURI(text string) error { return catalog.ValidURL(text, "http", "https") }

// shortRepository matches the scp-like form "git@host:group/app.git". The path must not begin with ":", because Git
// would then read the text as the name of a helper program.
var shortRepository = regexp.MustCompile(`^([A-Za-z0-9_][-A-Za-z0-9_.]*@)?[A-Za-z0-9][-A-Za-z0-9.]*:[^:]`)

// validRepository returns what is wrong with the address of a Git repository, nil if it is valid.
func validRepository(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return catalog.ValidURL(text, "http", "https", "ssh", "git")
	case strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\'
	}):
		return fmt.Errorf("%s is not the address of a Git repository: it contains a blank, a control character or a "+
			"backslash", strictyaml.Quote(text))
	case !shortRepository.MatchString(text):
		return fmt.Errorf("%s is not the address of a Git repository: write http://, https://, ssh:// or git:// and "+
			"the rest, or user@host:path", strictyaml.Quote(text))
	}
	return nil
}

// maxBranchLength is the maximum length of a branch name in bytes: Git stores it as a file name.
const maxBranchLength = 250

// validBranch returns what is wrong with the name of a Git branch by the rules of git-check-ref-format(1) and
// git-branch(1), nil if it is valid.
func validBranch(name string) error {
	if len(name) > maxBranchLength {
		return fmt.Errorf("is too long for the name of a branch: at most %d characters", maxBranchLength)
	}
	illegal := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }
	parts := "/" + name + "/"
	for _, rule := range []struct {
		broken bool
		reason string
	}{
		{strings.HasPrefix(name, "refs/"), "leave out refs/heads/"},
		{strings.HasPrefix(name, "-"), `it begins with "-"`},
		{name == "@" || name == "HEAD", "Git reserves it"},
		{strings.HasSuffix(name, "."), `it ends with "."`},
		{strings.ContainsFunc(name, illegal), `it contains a blank, a control character or one of ~ ^ : ? * [ \`},
		{strings.Contains(name, "..") || strings.Contains(name, "@{"), `it contains ".." or "@{"`},
		{strings.Contains(parts, "//"), `it begins or ends with "/", or has a "/" next to another`},
		{strings.Contains(parts, "/."), `a part of it begins with "."`},
		{strings.Contains(parts, ".lock/"), `a part of it ends with ".lock"`},
	} {
		if rule.broken {
			return fmt.Errorf("%s is not the name of a branch: %s", strictyaml.Quote(name), rule.reason)
		}
	}
	return nil
}
