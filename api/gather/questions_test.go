package gather_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/gather"
)

// asker answers each question with its own name, and keeps what it was asked at once. It answers when it is told to.
type asker struct {
	mu     sync.Mutex
	calls  [][]string
	begun  chan int
	answer chan error
}

func newAsker() *asker { return &asker{begun: make(chan int, 100), answer: make(chan error)} }

func (a *asker) ask(_ context.Context, questions []string) ([]string, error) {
	a.mu.Lock()
	a.calls = append(a.calls, questions)
	a.mu.Unlock()
	a.begun <- len(questions)
	if err := <-a.answer; err != nil {
		return nil, err
	}
	answers := make([]string, len(questions))
	for i, question := range questions {
		answers[i] = "answer to " + question
	}
	return answers, nil
}

// patient never loses its patience within a test.
var patient = gather.Limits{Patience: time.Hour, Questions: 3, Bytes: 100, Running: 100, Waiting: 1000}

// result is what one who asks gets.
type result struct {
	answer string
	err    error
}

// put asks in the background.
func put(ctx context.Context, g *gather.Questions[string, string], a *asker, whom, question string, bytes int) <-chan result {
	told := make(chan result, 1)
	go func() {
		answer, err := g.Ask(ctx, whom, question, bytes, a.ask)
		told <- result{answer, err}
	}()
	return told
}

func TestQuestionsThatComeMeanwhileAreAskedTogether(t *testing.T) {
	t.Parallel()
	g, a := &gather.Questions[string, string]{Limits: patient}, newAsker()
	first := put(t.Context(), g, a, "alice", "0", 1)
	require.Equal(t, 1, <-a.begun, "nobody waits for company while nothing is being asked")
	second, third := put(t.Context(), g, a, "alice", "1", 1), put(t.Context(), g, a, "alice", "2", 1)
	other := put(t.Context(), g, a, "bob", "3", 1)
	require.Equal(t, 1, <-a.begun, "who is asked something else is not waited for")
	fourth := put(t.Context(), g, a, "alice", "4", 1)
	require.Equal(t, 3, <-a.begun, "as many as fit wait for nobody")
	for range 3 {
		a.answer <- nil
	}
	for question, told := range map[string]<-chan result{"0": first, "1": second, "2": third, "3": other, "4": fourth} {
		require.Equal(t, result{answer: "answer to " + question}, <-told, "each gets its own answer")
	}
}

func TestWhoWaitsIsAskedWhenTheOthersAreAnswered(t *testing.T) {
	t.Parallel()
	g, a := &gather.Questions[string, string]{Limits: patient}, newAsker()
	first := put(t.Context(), g, a, "alice", "0", 1)
	<-a.begun
	gone, cancel := context.WithCancel(t.Context())
	second := put(gone, g, a, "alice", "1", 1)
	cancel()
	require.ErrorIs(t, (<-second).err, context.Canceled, "who goes away is not kept")
	a.answer <- nil
	require.NoError(t, (<-first).err)
	require.Equal(t, 1, <-a.begun, "its question is asked nevertheless: others may wait with it")
	a.answer <- errors.New("away")
	third := put(t.Context(), g, a, "alice", "2", 1)
	<-a.begun
	a.answer <- errors.New("still away")
	require.EqualError(t, (<-third).err, "still away", "an error is told")
}

func TestPatienceHasAnEnd(t *testing.T) {
	t.Parallel()
	g, a := &gather.Questions[string, string]{Limits: gather.Limits{Patience: time.Millisecond, Questions: 3, Bytes: 100, Running: 2, Waiting: 10}}, newAsker()
	first := put(t.Context(), g, a, "alice", "0", 1)
	<-a.begun
	second := put(t.Context(), g, a, "alice", "1", 1)
	require.Equal(t, 1, <-a.begun, "who is answered slowly does not hold up the next")
	a.answer <- nil
	a.answer <- nil
	require.NoError(t, (<-first).err)
	require.NoError(t, (<-second).err)
}

func TestLargeQuestionsAreAskedApart(t *testing.T) {
	t.Parallel()
	g, a := &gather.Questions[string, string]{Limits: patient}, newAsker()
	told := []<-chan result{put(t.Context(), g, a, "alice", "0", 1000)}
	require.Equal(t, 1, <-a.begun, "one that is too large for company is asked nevertheless")
	told = append(told, put(t.Context(), g, a, "alice", "1", 60), put(t.Context(), g, a, "alice", "2", 60))
	require.Equal(t, 1, <-a.begun, "two that are too large together are not asked together")
	for range 3 {
		a.answer <- nil
	}
	for _, one := range told {
		require.NoError(t, (<-one).err)
	}
}

func TestWhoAsksMayPanicOrAnswerTooLittle(t *testing.T) {
	t.Parallel()
	var g gather.Questions[string, string]
	_, err := g.Ask(t.Context(), "alice", "0", 1, func(context.Context, []string) ([]string, error) { panic("no") })
	require.EqualError(t, err, "panic: no")
	_, err = g.Ask(t.Context(), "alice", "0", 1, func(context.Context, []string) ([]string, error) { return nil, nil })
	require.EqualError(t, err, "1 questions had 0 answers")
}

func TestManyAskAtOnce(t *testing.T) {
	t.Parallel()
	var g gather.Questions[int, int]
	var asking sync.WaitGroup
	for i := range 500 {
		asking.Go(func() {
			answer, err := g.Ask(t.Context(), fmt.Sprint(i%3), i, 1, func(_ context.Context, all []int) ([]int, error) {
				answers := make([]int, len(all))
				for k, question := range all {
					answers[k] = 2 * question
				}
				return answers, nil
			})
			if err != nil || answer != 2*i {
				t.Errorf("question %d: %d, %v", i, answer, err)
			}
		})
	}
	asking.Wait()
}

// A party that is asked more than it can answer at once answers one after the other: all at once would be late for everybody.
func TestWhoIsAskedTooMuchIsAskedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	g, a := &gather.Questions[string, string]{Limits: gather.Limits{Patience: 50 * time.Millisecond, Questions: 2, Bytes: 100, Running: 2, Waiting: 5}}, newAsker()
	told := make(chan result, 10)
	ask := func(n int) {
		for range n {
			go func() {
				answer, err := g.Ask(t.Context(), "alice", "x", 1, a.ask)
				told <- result{answer, err}
			}()
		}
	}
	ask(1)
	require.Equal(t, 1, <-a.begun)
	ask(2)
	require.Equal(t, 2, <-a.begun)
	ask(6)
	require.ErrorIs(t, (<-told).err, gather.ErrBusy, "who finds no room in the line is told so at once")
	require.Empty(t, a.begun, "no more than two are asked at once, however long that takes")
	for _, n := range []int{2, 2, 1} {
		a.answer <- nil
		require.Equal(t, n, <-a.begun)
	}
	a.answer <- nil
	a.answer <- nil
	for range 8 {
		require.NoError(t, (<-told).err)
	}
}
