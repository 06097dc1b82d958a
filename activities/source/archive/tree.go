package archive

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// The limits of names. Those of a part and a path are Linux's; that of a link's target is XFS's.
const (
	maxPart   = 255
	maxPath   = 4096
	maxDepth  = 100
	maxTarget = 1023
	// maxNames limits the memory of all names and targets of an archive together.
	maxNames = 64 << 20
	// maxHops is how many links one path may pass through, as in Linux.
	maxHops = 40
	// maxSteps limits the work of following all links of an archive.
	maxSteps = 10_000_000
)

// defaultMode is the mode of folders that only appear in the names of other entries.
const defaultMode fs.FileMode = 0o755

// splitName checks a name and returns its parts; none: the folder itself.
func splitName(name string) ([]string, error) {
	switch {
	case name == "":
		return nil, refusedEntry(name, "has no name")
	case len(name) > maxPath:
		return nil, refusedEntry(name, "has a name of %d bytes; at most %d are possible", len(name), maxPath)
	case strings.HasPrefix(name, "/"):
		return nil, refusedEntry(name, "leaves the folder: its name is an absolute path")
	}
	if problem := nameProblem(name); problem != "" {
		return nil, refusedEntry(name, "has a name that %s", problem)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return nil, refusedEntry(name, `leaves the folder: its name has ".."`)
		case len(part) > maxPart:
			return nil, refusedEntry(name, "has a part of %d bytes in its name; at most %d are possible", len(part),
				maxPart)
		}
		parts = append(parts, part)
	}
	if len(parts) > maxDepth {
		return nil, refusedEntry(name, "lies %d folders deep; at most %d are possible", len(parts), maxDepth)
	}
	return parts, nil
}

// nameProblem describes what is wrong with the characters of a name or of a link's target; empty: nothing.
func nameProblem(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "isn't UTF-8"
	case strings.Contains(text, `\`):
		return "has a backslash"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a control character"
	case len(text) >= 2 && text[1] == ':' && unicode.IsLetter(rune(text[0])) && text[0] < utf8.RuneSelf:
		return "begins with a drive letter"
	}
	return ""
}

// checkTarget checks the text of a symbolic link's target. checkLinks checks where it leads, once the whole archive is
// read.
func checkTarget(e entry) error {
	switch {
	case e.target == "":
		return refusedEntry(e.name, "is a symbolic link to nothing")
	case len(e.target) > maxTarget:
		return refusedEntry(e.name, "is a symbolic link with a target of more than %d bytes", maxTarget)
	case strings.HasPrefix(e.target, "/"):
		return refusedEntry(e.name, "is a symbolic link that leaves the folder: its target %s is an absolute path",
			quotedName(e.target))
	}
	if problem := nameProblem(e.target); problem != "" {
		return refusedEntry(e.name, "is a symbolic link with the target %s, which %s", quotedName(e.target), problem)
	}
	return nil
}

// tree holds the archive's entries so far: names and kinds, without content.
type tree struct {
	root *node
	// links are the symbolic links in the archive's order; folders contains every folder after its parent.
	links, folders []*node
	// size counts the nodes without the root.
	size int
	// names counts the bytes of names and targets.
	names int
	steps int
	fold  cases.Caser
}

// node is one name. The names in a folder must differ on every file system, also without regard to case and Unicode
// normalisation.
type node struct {
	name     string
	parent   *node
	kind     kind
	children map[string]*node
	target   string
	mode     fs.FileMode
	modified time.Time
}

func newTree() *tree { return &tree{root: &node{kind: folder}, fold: cases.Fold()} }

func (n *node) path() string {
	var parts []string
	for ; n.parent != nil; n = n.parent {
		parts = append(parts, n.name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// insert adds an entry and the folders that its name implies. made is true if it added a folder.
func (t *tree) insert(parts []string, e entry) (at *node, made bool, err error) {
	if len(parts) == 0 {
		if e.kind != folder {
			return nil, false, refusedEntry(e.name, "is a %s with the name of the folder itself", e.kind)
		}
		// The archive does not set its mode: the folder belongs to the caller.
		return t.root, false, nil
	}
	at = t.root
	for i, part := range parts {
		last := i == len(parts)-1
		key := t.key(part)
		next := at.children[key]
		switch {
		case next == nil:
			implied := entry{name: e.name, kind: folder, mode: defaultMode}
			if last {
				implied = e
			}
			if next, err = t.newNode(at, part, key, implied); err != nil {
				return nil, false, err
			}
			made = made || next.kind == folder
		case next.name != part:
			return nil, false, refusedEntry(e.name, "differs from %s only by case or by the form of its letters%s",
				quotedName(next.path()), t.jarHint())
		case !last && next.kind != folder:
			return nil, false, refusedEntry(e.name, "lies below %s, which is a %s", quotedName(next.path()), next.kind)
		case last && (next.kind != folder || e.kind != folder):
			return nil, false, refusedEntry(e.name, "is in the archive twice, as a %s and as a %s", next.kind, e.kind)
		case last:
			next.mode, next.modified = e.mode, e.modified
		}
		at = next
	}
	return at, made, nil
}

// jarHint returns a hint for jars, whose classes may differ by case: they are not meant to be unpacked.
func (t *tree) jarHint() string {
	if t.root.children["meta-inf"] == nil {
		return ""
	}
	return "; if this is a jar or war, set unpack: false to keep it as one file"
}

func (t *tree) newNode(above *node, name, key string, e entry) (*node, error) {
	n := &node{name: name, parent: above, kind: e.kind, target: e.target, mode: e.mode, modified: e.modified}
	t.size++
	t.names += len(name) + len(key) + len(e.target)
	if t.names > maxNames {
		return nil, refused("has names and links that take more than %d MiB together", maxNames>>20)
	}
	if above.children == nil {
		above.children = map[string]*node{}
	}
	above.children[key] = n
	switch e.kind {
	case folder:
		t.folders = append(t.folders, n)
	case symlink:
		t.links = append(t.links, n)
	}
	return n, nil
}

// key returns a form that is equal for all names that some file system treats as the same.
func (t *tree) key(part string) string {
	for i := range len(part) {
		if part[i] >= utf8.RuneSelf {
			return norm.NFD.String(t.fold.String(norm.NFD.String(part)))
		}
	}
	return strings.ToLower(part)
}

// resolveHardLink returns the path of the file that a hard link refers to. The link's own node becomes a file like any
// other.
func (t *tree) resolveHardLink(link *node, e entry) (string, error) {
	parts, err := splitName(e.target)
	if err != nil {
		return "", refusedEntry(e.name, "is a hard link to %s, which no entry can be", quotedName(e.target))
	}
	at := t.root
	for _, part := range parts {
		if at = at.children[t.key(part)]; at == nil || at.name != part {
			return "", refusedEntry(e.name, "is a hard link to %s, which isn't in the archive before it",
				quotedName(e.target))
		}
	}
	if at.kind != file {
		return "", refusedEntry(e.name, "is a hard link to %s, which is a %s, not a file", quotedName(e.target),
			at.kind)
	}
	link.kind = file
	return at.path(), nil
}

// checkLinks follows every symbolic link, through others, and refuses those that leave the folder.
func (t *tree) checkLinks(ctx context.Context) error {
	for _, link := range t.links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if problem := t.follow(link); problem != "" {
			return refusedEntry(link.path(), "is a symbolic link to %s, which %s", quotedName(link.target), problem)
		}
	}
	return nil
}

// location is a path that may not exist: a node, and the number of missing parts below it.
type location struct {
	at      *node
	missing int
}

func (s location) parent() (location, bool) {
	if s.missing > 0 {
		return location{s.at, s.missing - 1}, true
	}
	return location{at: s.at.parent}, s.at.parent != nil
}

// follow resolves a link's target as the kernel would, and describes what is wrong with it. It treats a missing part as
// a folder, which may be created later.
func (t *tree) follow(link *node) string {
	here := location{at: link.parent}
	rest := strings.Split(link.target, "/")
	for hops := 1; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if t.steps++; t.steps > maxSteps {
			return "takes too long to follow, as others that lead through each other do"
		}
		switch part {
		case "", ".":
			continue
		case "..":
			above, inside := here.parent()
			if !inside {
				return "leaves the folder"
			}
			here = above
			continue
		}
		if here.missing > 0 {
			here.missing++
			continue
		}
		next := here.at.children[t.key(part)]
		switch {
		case next == nil || next.name != part:
			here.missing++
		case next.kind == symlink:
			if hops++; hops > maxHops {
				return "leads through too many links, or in a circle"
			}
			target := strings.Split(next.target, "/")
			t.steps += len(target) + len(rest)
			rest = append(target, rest...)
		default:
			here.at = next
		}
	}
	return ""
}
