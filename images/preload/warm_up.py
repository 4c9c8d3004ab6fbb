"""Does once, in an interpreter that waits, what a library does only at its first use.

The first data frame that is read and the first model that is fitted cost a process about 20 ms more
than the second: parts are imported late, caches filled, and code is read into memory. `sitecustomize`
runs this after its imports, within its silence, for the libraries that it was told to import.

What has to hold here: nothing that a program could see but what an import might have done. Hence no
global random state, setting or warning is touched, no thread is started and no file is written; and
what is not imported yet is not imported here.
"""

import io
import sys
import warnings


def with_pandas(pandas):
    text = "number,name,target\n1.5,a,0\n2.5,b,1\n,a,1\n3.0,c,0\n"
    frame = pandas.read_csv(io.StringIO(text))
    frame.describe()
    frame.isna().sum()
    frame["number"] = frame["number"].fillna(frame["number"].mean())
    frame["name"].value_counts()
    frame.groupby("name")["number"].mean()
    pandas.get_dummies(frame, columns=["name"])
    frame.merge(frame, on="target")
    frame.drop(columns="target").to_numpy()
    pandas.DataFrame({"prediction": frame["target"].to_numpy()}).to_csv(io.StringIO(), index=False)
    repr(frame)


def with_sklearn(numpy):
    import pickle

    features = numpy.arange(40, dtype=float).reshape(20, 2) % 7
    target = numpy.arange(20) % 2

    def module(name):
        return sys.modules.get("sklearn." + name)

    if module("model_selection"):
        module("model_selection").train_test_split(features, target, random_state=0, stratify=target)
    models = []
    if module("tree"):
        models.append(module("tree").DecisionTreeClassifier(max_depth=2, random_state=0))
        models.append(module("tree").DecisionTreeRegressor(max_depth=2, random_state=0))
    if module("linear_model"):
        models.append(module("linear_model").LinearRegression())
        models.append(module("linear_model").LogisticRegression(max_iter=5))
    if module("preprocessing"):
        module("preprocessing").StandardScaler().fit_transform(features)
    for model in models:
        model.fit(features, target)
        model.predict(features)
        pickle.dumps(model)
        repr(model)
    if module("metrics"):
        module("metrics").accuracy_score(target, target)
        module("metrics").f1_score(target, target)
        module("metrics").mean_squared_error(target, target)


# Leaving this lets every warning be shown again that was shown here.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    if "pandas" in sys.modules:
        with_pandas(sys.modules["pandas"])
    if "sklearn" in sys.modules and "numpy" in sys.modules:
        with_sklearn(sys.modules["numpy"])
