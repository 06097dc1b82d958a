package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	clitask "slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/plan"
)

var plainDrawing = render.Drawing{Now: func() time.Time { return noon }}

// The states of a wave in the drawing.
const (
	waveDone   = "done"
	waveToCome = "pending"
	waveActive = "active"
)

// longTask is a task of waves with ten services each, in these states. In an active wave, one service has failed, one
// is running, and the others have succeeded or are pending.
func longTask(states ...string) plan.Task {
	t := plan.Task{ID: "long-1", Plan: "long", State: plan.TaskRunning, Reason: "wave 2 is running",
		StartedAt: beforeP(time.Minute)}
	for w, state := range states {
		for n := range 10 {
			s := plan.ServiceStatus{ServiceID: plan.ServiceID(fmt.Sprintf("s%d-%d", w+1, n)), Priority: int64(-w),
				Deployment: plan.Restart, State: plan.ItemPending}
			switch {
			case state == waveDone || (state == waveActive && n >= 6):
				s.State = plan.ItemSucceeded
			case state == waveActive && n == 0:
				s.State, s.Reason = plan.ItemFailed, "no image"
			case state == waveActive && n == 1:
				s.State = plan.ItemRunning
			}
			s.Workloads = []plan.WorkloadStatus{{Party: "default", Namespace: "shop", Kind: "Deployment",
				Name: string(s.ServiceID), State: s.State}}
			if s.State == plan.ItemRunning {
				s.Workloads[0].Message = "1 of 3 pods"
			}
			t.Services = append(t.Services, s)
		}
	}
	return t
}

const longHeader = "task long-1, plan long\nRunning, started 1m00s ago: wave 2 is running\n\n"

func TestDrawing_OmitsInactivePartsFirst(t *testing.T) {
	t.Parallel()
	task := longTask(waveDone, waveActive, waveToCome, waveToCome)
	activeServices := `  s2-0   RESTART   Failed              no image
    Deployment shop/s2-0   Failed
  s2-1   RESTART   Running
    Deployment shop/s2-1   Running     1 of 3 pods
`
	withoutParts := `  s2-0   RESTART   Failed              no image
    Deployment shop/s2-0   Failed
  s2-1   RESTART   Running             Deployment shop/s2-1: 1 of 3 pods
`
	// In the plan, the running service comes before the failed one.
	task.Services[10], task.Services[11] = task.Services[11], task.Services[10]
	inOrder := strings.Join([]string{"  s2-1   RESTART   Running", "    Deployment shop/s2-1   Running     1 of 3 pods",
		"  s2-0   RESTART   Failed              no image", "    Deployment shop/s2-0   Failed", ""}, "\n")
	quiet := func(wave int, from, to int, state string) string {
		var text strings.Builder
		for n := from; n <= to; n++ {
			fmt.Fprintf(&text, "  s%d-%d   RESTART   %s\n", wave, n, state)
		}
		return text.String()
	}
	wave := func(n int, counts string) string {
		return fmt.Sprintf("wave %d of 4, priority %d: %s\n", n, 1-n, counts)
	}
	activeWave := wave(2, "1 Failed, 1 Running, 4 Succeeded, 4 Pending")
	cases := map[string]struct {
		reason string
		height int
		want   string
	}{
		"Services": {
			"The workloads of inactive services are omitted first.", 60,
			wave(1, "10 Succeeded") + quiet(1, 0, 9, "Succeeded") + activeWave + inOrder + quiet(2, 2, 5, "Pending") +
				quiet(2, 6, 9, "Succeeded") +
				wave(3, "10 Pending") + quiet(3, 0, 9, "Pending") + wave(4, "10 Pending") + quiet(4, 0, 9, "Pending"),
		},
		"Waves": {
			"Then the services of completed and pending waves.", 24,
			wave(1, "10 Succeeded") + activeWave + inOrder + quiet(2, 2, 5, "Pending") + quiet(2, 6, 9, "Succeeded") +
				wave(3, "10 Pending") + wave(4, "10 Pending"),
		},
		"Active": {
			"Then inactive services.", 12,
			wave(1, "10 Succeeded") + activeWave + activeServices + wave(3, "10 Pending") + wave(4, "10 Pending"),
		},
		"OneLineEach": {
			"Then the workloads of running services; the service shows the message of its running workload.", 10,
			wave(1, "10 Succeeded") + activeWave + withoutParts + wave(3, "10 Pending") + wave(4, "10 Pending"),
		},
		"FewWaves": {
			"Then inactive waves share one line.", 9,
			"wave 1 of 4: done\n" + activeWave + withoutParts + "waves 3 to 4 of 4: pending\n",
		},
		"Least": {
			"A drawing that is still too long is cut and says so; the failure is first and remains visible.", 7,
			"wave 1 of 4: done\n" + activeWave + strings.SplitAfter(activeServices, "\n")[0] + "  … and 3 more lines\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := clitask.Fit(plainDrawing, task, 120, c.height)
			require.LessOrEqual(t, len(lines), c.height, c.reason)
			require.Equal(t, longHeader+c.want, strings.Join(lines, "\n")+"\n", c.reason)
		})
	}
}

func TestDrawing_StaysWithinWidth(t *testing.T) {
	t.Parallel()
	task := shopTask()
	task.Comment = "发布商店的所有服务,按顺序,不要停"
	task.Services[1].Workloads[0].Message = "ImagePullBackOff: " + strings.Repeat("x", 200)
	for width := 5; width < 130; width++ {
		for _, line := range clitask.Fit(plainDrawing, task, width, 40) {
			require.Less(t, render.DisplayWidth(line), width,
				"a line wrapped by the terminal would corrupt the next redraw: %q", line)
		}
	}
	coloured := render.Drawing{Now: plainDrawing.Now, Colour: true}
	require.Equal(t, strings.Join(clitask.Fit(plainDrawing, task, 60, 40), "\n"),
		withoutColour(strings.Join(clitask.Fit(coloured, task, 60, 40), "\n")),
		"colours take no columns")
}

func withoutColour(text string) string {
	for _, c := range []render.Colour{render.Bold, render.Dim, render.Red, render.Green, render.Yellow, render.Cyan,
		"0"} {
		text = strings.ReplaceAll(text, "\x1b["+string(c)+"m", "")
	}
	return text
}

func TestDrawing_RemovesControlCharacters(t *testing.T) {
	t.Parallel()
	task := shopTask()
	task.Services[1].Workloads[0].Message = "a\x1b[2Jb\nc\u202ed\a"
	drawn := strings.Join(clitask.DrawAll(plainDrawing, task), "\n")
	require.Contains(t, drawn, "a [2Jb c d", "control characters of a pod's message do not reach the terminal")
}

// terminal interprets the escape sequences that a live view writes.
type terminal struct {
	lines  [][]rune
	row    int
	column int
	hidden bool
	// broken collects sequences that it does not support.
	broken []string
}

func (v *terminal) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for n := 0; n < len(text); n++ {
		switch text[n] {
		case '\r':
			v.column = 0
		case '\n':
			v.row++
		case '\x1b':
			end := n + 2
			for end < len(text) && (text[end] < '@' || text[end] > '~') {
				end++
			}
			v.control(string(text[n+2:end]), text[end])
			n = end
		default:
			v.put(text[n])
		}
	}
	return len(p), nil
}

func (v *terminal) control(argument string, final rune) {
	number := 0
	_, _ = fmt.Sscan(argument, &number)
	switch final {
	case 'A':
		if v.row -= number; v.row < 0 {
			v.broken = append(v.broken, "the cursor left the screen")
			v.row = 0
		}
	case 'K':
		if v.row < len(v.lines) && v.column < len(v.lines[v.row]) {
			v.lines[v.row] = v.lines[v.row][:v.column]
		}
	case 'J':
		v.lines = v.lines[:min(v.row, len(v.lines))]
	case 'H':
		v.row, v.column = 0, 0
	case 'h', 'l':
		v.hidden = final == 'l'
	case 'm':
	default:
		v.broken = append(v.broken, fmt.Sprintf("ESC [ %s %c", argument, final))
	}
}

func (v *terminal) put(r rune) {
	for v.row >= len(v.lines) {
		v.lines = append(v.lines, nil)
	}
	for v.column >= len(v.lines[v.row]) {
		v.lines[v.row] = append(v.lines[v.row], ' ')
	}
	v.lines[v.row][v.column] = r
	v.column++
}

func (v *terminal) String() string {
	var text strings.Builder
	for _, l := range v.lines {
		text.WriteString(strings.TrimRight(string(l), " ") + "\n")
	}
	return text.String()
}

// liveSession returns a live view on a terminal of this size.
func liveSession(t *testing.T, width, height int) (*follow.LiveView[plan.Task], *terminal, *app.App) {
	t.Helper()
	screen := &terminal{}
	a := newSession(t, "").app
	a.Out, a.Colour = screen, true
	a.Screen = func() (int, int, bool) { return width, height, true }
	view, ok := follow.NewView(a, follow.Renderer[plan.Task]{Fit: clitask.Fit, Changes: clitask.Changes,
		Summary: clitask.Summary}).(*follow.LiveView[plan.Task])
	require.True(t, ok, "a terminal gets the live view")
	return view, screen, a
}

func TestLiveViewDrawsInPlace(t *testing.T) {
	t.Parallel()
	view, screen, a := liveSession(t, 100, 30)
	task := shopTask()
	show := func(u follow.Update[plan.Task]) string { view.Show(u); return screen.String() }

	drawn := show(follow.Update[plan.Task]{State: &task})
	require.Equal(t, strings.Join(clitask.DrawAll(plainDrawing, task), "\n")+"\n", drawn)
	require.True(t, screen.hidden, "the cursor is hidden")

	require.Equal(t, drawn+"connection lost at 12:00:00, retrying: connection refused\n",
		show(follow.Update[plan.Task]{Lost: "connection refused"}))
	a.Now = func() time.Time { return noon.Add(5 * time.Second) }
	view.Drawing.Now = a.Now
	view.Tick()
	require.Contains(t, screen.String(), "Running, started 1m10s ago", "durations are updated between events")

	view.Drawing.Now = func() time.Time { return noon }
	done := shopTaskIn(plan.TaskSucceeded, "done")
	require.Equal(t, strings.Join(clitask.DrawAll(plainDrawing, done), "\n")+"\n",
		show(follow.Update[plan.Task]{State: &done}),
		"the new state replaces the old one and the warning")

	require.NoError(t, view.End(app.ExitOK))
	require.Equal(t, strings.Join(clitask.DrawAll(plainDrawing, done),
		"\n")+"\n\ntask shop-1 is Succeeded after 1m00s\nReport: slipway task report shop-1\n", screen.String())
	require.False(t, screen.hidden, "the cursor is shown again")
	require.Empty(t, screen.broken)
}

func TestLiveView_NeverScrolls(t *testing.T) {
	t.Parallel()
	view, screen, _ := liveSession(t, 80, 12)
	task := longTask(waveDone, waveActive, waveToCome)
	for range 3 {
		view.Show(follow.Update[plan.Task]{State: &task, Stale: ""})
		view.Show(follow.Update[plan.Task]{Lost: "connection lost"})
		require.Less(t, len(screen.lines), 12, "a drawing that scrolled could not be replaced")
	}
	require.Contains(t, screen.String(), "s2-0   RESTART   Failed", "the failure is visible on a small screen")
	require.Empty(t, screen.broken)
}

func TestLiveView_Redraws_WhenTerminalNarrows(t *testing.T) {
	t.Parallel()
	view, screen, a := liveSession(t, 100, 30)
	task := shopTask()
	view.Show(follow.Update[plan.Task]{State: &task})
	a.Screen = func() (int, int, bool) { return 40, 30, true }
	view.Tick()
	require.Equal(t, strings.Join(clitask.Fit(plainDrawing, task, 40, 28), "\n")+"\n", screen.String(),
		"lines wrapped by the terminal are cleared")
}

func TestShortDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 65 * time.Second: "1m05s",
		2*time.Hour + 10*time.Minute: "2h10m",
		99 * time.Hour:               "4d3h",
	} {
		require.Equal(t, want, render.ShortDuration(d), "a duration in its two largest units")
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{0: "…", 1: "…", 2: "…", 3: "购…", 4: "购…", 5: "购物…", 6: "购物车"} {
		require.Equal(t, want, render.Truncate("购物车", width), "Chinese characters take two columns, at width %d", width)
	}
}
