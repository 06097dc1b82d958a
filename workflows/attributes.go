package workflows

// CutMarker ends a list that was cut.
const CutMarker = "…"

// FitList cuts a list to what one search attribute holds, and ends it with a marker where it was cut: the server refuses 2,048 bytes and more
// of it as JSON.
func FitList(list []string) []string {
	const most = 2000
	size := 0
	for i, value := range list {
		if size += len(value) + len(`"",`); size > most-len(CutMarker)-len(`"",`) {
			return append(list[:i:i], CutMarker)
		}
	}
	return list
}
