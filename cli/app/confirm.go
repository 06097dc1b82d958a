package app

import (
	"bufio"
	"strings"
)

// Agree has a person confirm what was shown. Without a terminal nobody can: then the command line has to say it, by the flags in named.
func (a *App) Agree(question, named string) error {
	if !a.InIsTerminal {
		return Usagef("this needs a confirmation, and the standard input is no terminal: add %s", named)
	}
	if !a.Confirm(question) {
		a.Printf(a.Err, "Nothing was changed.\n")
		return &ExitError{Code: ExitFailure}
	}
	return nil
}

// Confirm asks a person. Whoever does not answer has not agreed.
func (a *App) Confirm(question string) bool {
	a.Printf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
