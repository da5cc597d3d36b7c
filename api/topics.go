package api

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// A topic may have slashes and any other characters except control characters. Proxies change such characters in paths,
// so the routes take a topic as a parameter or in the body.

func (a *API) listTopics(ctx context.Context, in *surface.TopicQuery) (surface.TopicPage, error) {
	return surface.Topics(ctx, a.b, *in)
}

// topicQuery has the parameter of the route about one topic.
type topicQuery struct {
	Topic string `query:"topic" required:"true" doc:"The topic."`
}

func (a *API) getTopic(ctx context.Context, in *topicQuery) (store.TopicProgress, error) {
	if err := holdfast.CheckTopic(in.Topic); err != nil {
		return store.TopicProgress{}, badParameter("topic", err)
	}
	return a.b.Store.TopicProgress(ctx, in.Topic)
}

// topicWeights is a list of weights.
type topicWeights struct {
	Weights []store.TopicWeight `json:"weights"`
}

func (a *API) listTopicWeights(ctx context.Context, in *surface.WeightQuery) (topicWeights, error) {
	found, err := a.b.Store.TopicWeights(ctx, in.Limit)
	return topicWeights{append([]store.TopicWeight{}, found...)}, err
}

func (a *API) setTopicWeight(ctx context.Context, _ *RawJSON, r surface.NewWeight) (surface.WeightChange, error) {
	return surface.SetTopicWeight(ctx, a.b, actor(ctx, r.Reason), r)
}
