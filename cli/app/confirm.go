package app

import (
	"bufio"
	"strings"
)

// Confirm asks a person. Whoever does not answer has not agreed.
func (a *App) Confirm(question string) bool {
	a.Printf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
