package config

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// workBudget is how much text the functions and extended paths of one template may generate, in bytes, whether or not
// it reaches the output.
const workBudget = 4 * MaxSize

// budget bounds the text that a template generates: printing the result of an earlier print doubles it with each line.
type budget struct{ bytes int }

// functions returns replacements for the functions of text/template that generate text: the same functions within the
// budget.
func (b *budget) functions() template.FuncMap {
	limited := func(print func(...any) string) any {
		return func(args ...any) (string, error) { return b.spend(print, args) }
	}
	return template.FuncMap{
		"print": limited(fmt.Sprint), "println": limited(fmt.Sprintln), "html": limited(template.HTMLEscaper),
		"js":       limited(template.JSEscaper),
		"urlquery": limited(template.URLQueryEscaper),
		"printf": func(format string, args ...any) (string, error) {
			wide, err := formatSize(format)
			if err == nil {
				err = b.take(wide)
			}
			if err != nil {
				return "", err
			}
			return b.spend(func(args ...any) string { return fmt.Sprintf(format, args...) }, args)
		},
	}
}

var errTooMuch = errors.New("the template generates too much text: insert the values directly")

// maxGrowth is the maximum number of bytes that an escaper or a verb makes of one byte.
const maxGrowth = 16

func (b *budget) spend(print func(...any) string, args []any) (string, error) {
	size := 0
	for _, a := range args {
		size += sizeOf(a)
	}
	// Check the maximum size before the text is generated, then charge the actual size.
	if size > b.bytes/maxGrowth {
		return "", errTooMuch
	}
	text := print(args...)
	return text, b.take(len(text))
}

func (b *budget) take(n int) error {
	if n > b.bytes {
		return errTooMuch
	}
	b.bytes -= n
	return nil
}

// sizeOf estimates the text size of an argument.
func sizeOf(argument any) int {
	switch a := argument.(type) {
	case string:
		return len(a)
	case map[string]string:
		size := 0
		for name, value := range a {
			size += len(name) + len(value) + 2
		}
		return size
	}
	return 32
}

// formatSize returns how much text a format generates by itself. Syntax that repeats an argument or takes a width from
// one is refused.
func formatSize(format string) (int, error) {
	if strings.ContainsAny(format, "*[") {
		return 0, errors.New("printf: * and [n] are not supported")
	}
	size, number := len(format), 0
	for _, c := range []byte(format) {
		if c < '0' || c > '9' {
			number = 0
			continue
		}
		number = min(number*10+int(c-'0'), MaxSize)
		size = min(size+number, MaxSize*maxGrowth)
	}
	return size, nil
}

// limitedWriter fails a write beyond its limit.
type limitedWriter struct {
	to   io.Writer
	left int
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, fmt.Errorf("it becomes larger than %d bytes", MaxSize)
	}
	w.left -= len(p)
	return w.to.Write(p)
}
