package config

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// workBudget is how much the functions and the extended paths of one template may make, in bytes, whether it is written or thrown away.
const workBudget = 4 * MaxSize

// budget bounds what a template makes: one that prints what it printed before doubles it with each line.
type budget struct{ bytes int }

// functions stand in for those of text/template that make text: the same, within the budget.
func (b *budget) functions() template.FuncMap {
	limited := func(print func(...any) string) any {
		return func(args ...any) (string, error) { return b.spend(print, args) }
	}
	return template.FuncMap{
		"print": limited(fmt.Sprint), "println": limited(fmt.Sprintln), "html": limited(template.HTMLEscaper), "js": limited(template.JSEscaper),
		"urlquery": limited(template.URLQueryEscaper),
		"printf": func(format string, args ...any) (string, error) {
			wide, err := widths(format)
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

var errTooMuch = errors.New("too much text is made on the way: put the values in directly")

// growth is how many bytes an escaper or a verb makes of one byte at most.
const growth = 16

func (b *budget) spend(print func(...any) string, args []any) (string, error) {
	size := 0
	for _, a := range args {
		size += sizeOf(a)
	}
	// Judged before it is made by what it may become at most, then by what it is.
	if size > b.bytes/growth {
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

// sizeOf is about how much text an argument is.
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

// widths is how much text a format makes by itself. The syntax that would repeat an argument, or take a width from one, is refused.
func widths(format string) (int, error) {
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
		size = min(size+number, MaxSize*growth)
	}
	return size, nil
}

// limitedWriter refuses what goes beyond its limit.
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
