//go:build failpoints

// Package failpoint kills the process at chosen points, for tests only.
//
// SLIPWAY_FAILPOINTS_LOG names a file to which every hit is appended as a line, before anything else happens.
// SLIPWAY_FAILPOINTS_FILE names a file that arms one kill: {"name": "…", "after": 2} kills at the third hit of that
// name, or of any if there is no name. Hits count from the moment the file has its current content. The file is renamed
// before the process dies, so that the next process lives.
package failpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// arming is the content of the armed file.
type arming struct {
	Name  string `json:"name"`
	After int    `json:"after"`
}

// points is the state of one process.
type points struct {
	mu      sync.Mutex
	file    string
	log     string
	kill    func()
	armed   string
	counted int
}

var process = &points{
	file: os.Getenv("SLIPWAY_FAILPOINTS_FILE"),
	log:  os.Getenv("SLIPWAY_FAILPOINTS_LOG"),
	kill: killSelf,
}

// Hit records that the process reached a point, and kills it there if that is armed.
func Hit(name string) { process.hit(name) }

// Around makes a write between two points, <name>.before and <name>.after.
func Around(name string, write func() error) error { return process.around(name, write) }

func (p *points) around(name string, write func() error) error {
	p.hit(name + ".before")
	err := write()
	p.hit(name + ".after")
	return err
}

func (p *points) hit(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(name)
	if p.file == "" {
		return
	}
	raw, err := os.ReadFile(p.file)
	if err != nil {
		p.armed = ""
		return
	}
	if text := string(raw); text != p.armed {
		p.armed, p.counted = text, 0
	}
	var want arming
	strict := json.NewDecoder(strings.NewReader(p.armed))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&want); err != nil {
		panic(fmt.Sprintf("failpoints: %s: %v", p.file, err)) // a test with an invalid arming must not pass
	}
	if want.Name != "" && want.Name != name {
		return
	}
	p.counted++
	if p.counted <= want.After {
		return
	}
	// The process that renames the file owns the kill: of two processes only one dies.
	if os.Rename(p.file, fmt.Sprintf("%s.used.%d", p.file, os.Getpid())) == nil {
		p.record("killed " + name)
		p.kill()
	}
}

func (p *points) record(line string) {
	if p.log == "" {
		return
	}
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s\n", line)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("failpoints: %v", err)) // tests rely on the log
	}
}

func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
